"""The agent's own memory on disk: who was given what.

The file ``checkpoint.json`` in the state directory is a snapshot with a journal behind it (form:
`journal`, file: `append_file`). A change appends one line and waits for the disk, so what it costs
does not depend on how much is kept. When the file is loaded, and by `compact`, it is written again.
A reader sees the state before or after a change and never a mixture, however the writer ended; an
error leaves the old state.

A missing file is the empty state; a damaged one is put aside and reported, since the kubelet
remains the other record (`recovery`).

Synchronised by a lock of its own, which may be taken under the agent's. `compact` does its slow
part without it, so it may run during `put` and `drop` without holding them up.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from deviceplugin import runtime
from deviceplugin.model.allocations import Allocation
from libvgpu.errors import VgpuError

from . import journal
from .append_file import LogFile
from .disk import Disk

NAME = "checkpoint.json"
#: Thousands of allocations take a few MiB.
MOST_BYTES = 64 << 20
#: The file is written again when it is so many times as long as its snapshot, and not a short one.
COMPACT_AT_TIMES = 4
COMPACT_SLACK_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was on disk.

    Attributes:
        trusted: a whole file was read, so what it does not name is ours to remove.
        problem: what was wrong with the file, as a sentence; None where nothing was.
    """

    allocations: tuple[Allocation, ...]
    trusted: bool
    problem: str | None = None


class Checkpoint:
    """The file ``checkpoint.json`` in the state directory."""

    def __init__(self, state_dir: Path, disk: Disk | None = None) -> None:
        self.path = state_dir / NAME
        self._disk = disk or Disk()
        self._lock = runtime.lock()
        self._file = LogFile(self.path, self._disk)
        self._live: dict[str, Allocation] = {}  # what the file says

    def load(self) -> Loaded:
        """Returns the stored allocations, the oldest first.

        Raises:
            VgpuError: the file is there and cannot be read.
        """
        with self._lock:
            try:
                raw = self._disk.read(self.path, MOST_BYTES + 1)
            except FileNotFoundError:
                return Loaded((), trusted=False)
            except OSError as error:
                raise VgpuError(f"{self.path} cannot be read: {error.strerror}") from None
            try:
                if len(raw) > MOST_BYTES:
                    raise ValueError(f"more than the {MOST_BYTES} bytes that it may have")
                found = journal.replay(raw)
            except ValueError as error:
                return self._put_aside(error)
            self._live = {h.allocation_id: h for h in found.allocations}
            with suppress(OSError):  # a full disk: the next change says so
                self._file.replace(journal.snapshot(found.allocations))
            problem = f"the last line of {self.path} was torn and is dropped"
            return Loaded(found.allocations, trusted=True, problem=problem if found.torn else None)

    def record(self, put: Iterable[Allocation] = (), drop: Iterable[str] = ()) -> None:
        """Stores several changes as one: all of them are on disk when it returns, or none.

        What is stored already costs nothing.

        Raises:
            VgpuError: the disk does not take it; the old state is still there.
        """
        with self._lock:
            # Identity first: to compare a thousand allocations by value takes a millisecond.
            new = [h for h in put if (old := self._live.get(h.allocation_id)) is not h and old != h]
            gone = [each for each in drop if each in self._live]
            if not new and not gone:
                return
            after = {**self._live, **{h.allocation_id: h for h in new}}
            for allocation_id in gone:
                del after[allocation_id]
            try:
                if self._file.appendable:
                    self._file.append(journal.change(new, gone))
                else:
                    self._file.replace(journal.snapshot(after.values()))
            except OSError as error:
                raise self._refused(error) from None
            self._live = after

    def compact(self) -> bool:
        """Writes the file again if its journal has become long; returns whether it did.

        Raises:
            VgpuError: the disk does not take it; the state is still there.
        """
        with self._lock:
            limit = self._file.base * COMPACT_AT_TIMES + COMPACT_SLACK_BYTES
            if self._file.length <= limit:
                return False
            live, copied, mark = list(self._live.values()), self._file.length, self._file.mark()
        try:
            fresh = self._file.prepare(journal.snapshot(live), ".compact")
            with self._lock:
                return self._file.swap(fresh, mark, copied)
        except OSError as error:
            raise self._refused(error) from None

    def close(self) -> None:
        """Lets the file go."""
        with self._lock:
            self._file.close()

    def _put_aside(self, error: ValueError) -> Loaded:
        aside = self.path.with_suffix(".damaged")
        try:
            self._disk.rename(self.path, aside)
        except OSError as refused:
            raise VgpuError(
                f"{self.path} is damaged ({error}) and cannot be put aside: {refused.strerror}"
            ) from None
        return Loaded(
            (), trusted=False, problem=f"{self.path} is damaged ({error}); kept as {aside}"
        )

    def _refused(self, error: OSError) -> VgpuError:
        return VgpuError(f"{self.path} cannot be written: {error.strerror}")
