"""What contexts take, kept over restarts.

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
from deviceplugin.policy.context_costs import ContextCosts, ContextKind, MeasuredContext

FILE = "context-costs.json"


class KeptContextCosts:
    """`ContextCosts` with their file.

    Attributes:
        costs: what is known; changed in place.
    """

    def __init__(self, directory: Path) -> None:
        """Takes over what was saved in a directory."""
        self._path = directory / FILE
        self.costs = _load(self._path)

    def note(self, found: Iterable[tuple[ContextKind | None, MeasuredContext]]) -> None:
        """Takes what containers measured on GPUs of some kinds; of a kind that is None nothing."""
        is_news = False
        for kind, each in found:
            is_news |= kind is not None and self.costs.note(kind, each)
        if is_news:
            self._save()

    def _save(self) -> None:
        rows = [
            {
                "product": kind.product,
                "driver": kind.driver,
                "under_mps": kind.under_mps,
                "bytes": sizes,
            }
            for kind, sizes in self.costs.measured.items()
        ]
        new = self._path.with_suffix(".new")
        try:
            new.write_text(json.dumps(rows))
            os.replace(new, self._path)
        except OSError as error:
            event(logging.WARNING, "what contexts take cannot be saved", reason=error.strerror)
            with contextlib.suppress(OSError):
                new.unlink()


def _load(path: Path) -> ContextCosts:
    try:
        rows = json.loads(path.read_text())
        return ContextCosts(
            {
                ContextKind(str(row["product"]), str(row["driver"]), bool(row["under_mps"])): {
                    str(key): int(size) for key, size in row["bytes"].items()
                }
                for row in rows
            }
        )
    except (OSError, ValueError, AttributeError, KeyError, TypeError):
        return ContextCosts()
