"""A disk in memory that can stop at any call, or fail it, and shows all that a crash may leave.

A killed process leaves what it wrote. After a power cut a file has what was synced last and, of
what came after, nothing, all, a part of the last write, or the room without the bytes; of the names
that were changed since their directory was synced any number of the first ones holds.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from deviceplugin.store.disk import Disk

Files = dict[Path, bytes]


class Stopped(BaseException):
    """The machine stopped here; nothing catches this but a test."""


@dataclass
class _Inode:
    durable: bytes = b""
    now: bytes = b""
    since: list[tuple[int, bytes]] = field(default_factory=list)  # writes since the last sync

    def outcomes(self) -> Iterator[bytes]:
        """Yields what a power cut may leave."""
        yield self.durable
        yield self.now
        if not self.since:
            return
        yield self.durable + bytes(max(0, len(self.now) - len(self.durable)))
        before = self.durable
        for offset, data in self.since[:-1]:
            before = _written(before, offset, data)
        offset, data = self.since[-1]
        half = len(data) // 2
        yield _written(before, offset, data[:half])
        yield _written(before, offset, bytes(half) + data[half:])


def _written(content: bytes, offset: int, data: bytes) -> bytes:
    content = content.ljust(offset, b"\0")
    return content[:offset] + data + content[offset + len(data) :]


class SimDisk(Disk):
    """The disk; ``stop_at`` numbers the call at which it stops, ``fail_at`` those that fail."""

    def __init__(self, files: Files | None = None) -> None:
        self.names = {path: _Inode(data, data) for path, data in (files or {}).items()}
        self.synced_names = dict(self.names)
        self.renames: list[tuple[Path, Path]] = []
        self.made: list[tuple[Path, _Inode]] = []
        self.open: dict[int, _Inode] = {}
        self.calls = 0
        self.stop_at = -1
        self.stop_within = 0  # bytes of a write that are done before it stops
        self.fail_at: set[int] = set()
        self.write_lengths: dict[int, int] = {}

    # ---- what is left ------------------------------------------------------------------------

    def killed(self) -> Files:
        """Returns the files as the next process finds them."""
        return {path: inode.now for path, inode in self.names.items()}

    def power_cut(self) -> Iterator[Files]:
        """Yields the files as they may be when the machine is back."""
        for kept in range(len(self.renames) + 1):
            names = dict(self.synced_names)
            names.update(self.made)
            for old, new in self.renames[:kept]:
                if old in names:
                    names[new] = names.pop(old)
            for path, inode in names.items():
                for content in inode.outcomes():
                    others = {p: i.now for p, i in names.items() if p != path}
                    yield {**others, path: content}
                    yield {**{p: i.durable for p, i in names.items()}, path: content}

    # ---- the disk ----------------------------------------------------------------------------

    def _call(self) -> bool:
        """Counts a call; returns whether the machine stops in it."""
        self.calls += 1
        if self.calls - 1 in self.fail_at:
            raise OSError(5, "Input/output error")
        return self.calls - 1 == self.stop_at

    def _step(self, act: Callable[[], None]) -> None:
        if self._call():
            raise Stopped
        act()

    def read(self, path: Path, most_bytes: int) -> bytes:
        if path not in self.names:
            raise FileNotFoundError(2, "No such file or directory")
        return self.names[path].now[:most_bytes]

    def create(self, path: Path) -> int:
        if self._call():
            raise Stopped
        if path in self.names:  # emptied in place, as O_TRUNC does
            inode = self.names[path]
            inode.durable = inode.now = b""
            inode.since = []
        else:
            inode = self.names[path] = _Inode()
            self.made.append((path, inode))
        descriptor = max(self.open, default=2) + 1
        self.open[descriptor] = inode
        return descriptor

    def write(self, descriptor: int, data: bytes, offset: int) -> None:
        inode = self.open[descriptor]
        self.write_lengths[self.calls] = len(data)
        failing = self.calls in self.fail_at
        stopping = self.calls == self.stop_at
        done = data[: self.stop_within] if stopping else data[: len(data) // 2] if failing else data
        inode.now = _written(inode.now, offset, done)
        inode.since.append((offset, done))
        if self._call():
            raise Stopped

    def read_at(self, descriptor: int, offset: int, length: int) -> bytes:
        return self.open[descriptor].now[offset : offset + length]

    def truncate(self, descriptor: int, length: int) -> None:
        def act() -> None:
            inode = self.open[descriptor]
            inode.now = inode.now[:length]
            inode.since = [(0, inode.now)]

        self._step(act)

    def sync(self, descriptor: int) -> None:
        def act() -> None:
            inode = self.open[descriptor]
            inode.durable, inode.since = inode.now, []

        self._step(act)

    def rename(self, old: Path, new: Path) -> None:
        def act() -> None:
            self.names[new] = self.names.pop(old)
            self.renames.append((old, new))

        self._step(act)

    def sync_directory(self, path: Path) -> None:
        def act() -> None:
            self.synced_names, self.renames, self.made = dict(self.names), [], []

        self._step(act)

    def close(self, descriptor: int) -> None:
        del self.open[descriptor]
