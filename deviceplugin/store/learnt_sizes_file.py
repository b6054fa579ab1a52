"""What contexts and blocks take, kept over restarts.

The agent has it in its state directory, `vgpuctl run` in its run directory. The caller keeps two
writers apart, or loses what one of them learnt.

A file that is missing or damaged is none: it is measured again. One that cannot be written is said,
and the old one stays.
"""

import contextlib
import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path

from deviceplugin.log import event
from deviceplugin.policy.limits.learnt_sizes import GpuKind, LearntSizes, MeasuredSizes, Sizes
from libvgpu.sizes import MAX_BYTES

FILE = "learnt-sizes.json"


class KeptSizes:
    """`LearntSizes` with their file.

    Attributes:
        learnt: what is known; changed in place.
    """

    def __init__(self, directory: Path) -> None:
        """Takes over what was saved in a directory."""
        self._path = directory / FILE
        self.learnt = _load(self._path)

    def note(self, found: Iterable[tuple[GpuKind | None, MeasuredSizes]]) -> None:
        """Takes what containers measured on GPUs of some kinds; of a kind that is None nothing."""
        is_news = False
        for kind, each in found:
            is_news |= kind is not None and self.learnt.note(kind, each)
        if is_news:
            self._save()

    def _save(self) -> None:
        rows = [
            {
                "product": kind.product,
                "driver": kind.driver,
                "under_mps": kind.under_mps,
                "sizes": {each: [s.context_bytes, s.block_bytes] for each, s in sizes.items()},
            }
            for kind, sizes in self.learnt.measured.items()
        ]
        new = self._path.with_suffix(".new")
        try:
            new.write_text(json.dumps(rows))
            os.replace(new, self._path)
        except OSError as error:
            event(logging.WARNING, "learnt sizes cannot be saved", reason=error.strerror)
            with contextlib.suppress(OSError):
                new.unlink()


def _sizes(context_bytes: int, block_bytes: int) -> Sizes:
    if not all(0 <= int(size) <= MAX_BYTES for size in (context_bytes, block_bytes)):
        raise ValueError
    return Sizes(int(context_bytes), int(block_bytes))


def _load(path: Path) -> LearntSizes:
    try:
        rows = json.loads(path.read_text())
        return LearntSizes(
            {
                GpuKind(str(row["product"]), str(row["driver"]), bool(row["under_mps"])): {
                    str(each): _sizes(*sizes) for each, sizes in row["sizes"].items()
                }
                for row in rows
            }
        )
    except (
        OSError,
        ValueError,
        AttributeError,
        KeyError,
        TypeError,
        OverflowError,
        RecursionError,
    ):
        return LearntSizes()
