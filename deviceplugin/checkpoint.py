"""The agent's own memory on disk: who was given what.

One JSON file, replaced as a whole (temporary file, fsync, rename, fsync of the directory), so a
reader sees the old or the new state and never a mixture. A missing file is the empty state; a
damaged one is put aside and reported, since the kubelet remains the other witness. Written only by
the one agent of a node, under its lock.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from libvgpu.errors import VgpuError
from libvgpu.limits import Family

from .holdings import Holding, Owner

VERSION = 1
NAME = "checkpoint.json"


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was on disk.

    Attributes:
        trusted: a whole file was read, so what it does not name is ours to remove.
        problem: why the file was put aside, None where it was not.
    """

    holdings: tuple[Holding, ...]
    trusted: bool
    problem: str | None = None


class Checkpoint:
    """The file ``checkpoint.json`` in the state directory."""

    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / NAME

    def load(self) -> Loaded:
        """Returns the stored holdings."""
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return Loaded((), trusted=False)
        except OSError as error:
            raise VgpuError(f"{self.path} cannot be read: {error.strerror}") from None
        try:
            data = json.loads(raw)
            if data["version"] != VERSION:
                raise ValueError(f"version {data['version']!r}, not {VERSION}")
            return Loaded(tuple(_holding(h) for h in data["holdings"]), trusted=True)
        except (ValueError, KeyError, TypeError) as error:
            aside = self.path.with_suffix(".damaged")
            self.path.replace(aside)
            return Loaded(
                (), trusted=False, problem=f"{self.path} is damaged ({error}); kept as {aside}"
            )

    def save(self, holdings: Iterable[Holding]) -> None:
        """Replaces the stored state.

        Raises:
            VgpuError: the disk does not take it; the old state is still there.
        """
        rows = [{**asdict(h), "family": h.family.name} for h in holdings]
        content = json.dumps({"version": VERSION, "holdings": rows}, separators=(",", ":"))
        temporary = self.path.with_suffix(".new")
        try:
            with open(temporary, "w", encoding="utf-8") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
            directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise VgpuError(f"{self.path} cannot be written: {error.strerror}") from None


def _holding(row: dict[str, Any]) -> Holding:
    known = {f.name for f in fields(Holding)}
    values = {key: value for key, value in row.items() if key in known}
    values["family"] = Family[values["family"]]
    for key in ("core", "memory", "borrowed"):
        values[key] = tuple(str(unit) for unit in values.get(key, ()))
    if values.get("owner") is not None:
        values["owner"] = Owner(**values["owner"])
    return Holding(**values)
