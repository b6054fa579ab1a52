"""A file that grows by whole appends and is now and then replaced by a shorter one.

An append is on disk when it returns. A replacement is written next to the file under another name,
brought to disk, and renamed over it; until the new name is on disk as well, nothing is appended to
it, since a power cut could bring the old file back. After any error the file is closed and must be
replaced before the next append: nobody knows what of a failed write or sync is on the disk.

The caller synchronises, apart from `prepare`, which touches nothing but the new file.
"""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .disk import Disk


@dataclass(slots=True)
class Prepared:
    """A file that is on disk under a name of its own.

    Attributes:
        length: bytes in it.
        base: bytes it had when it was made.
    """

    path: Path
    descriptor: int
    length: int
    base: int


class LogFile:
    """The file ``path``; every method raises OSError as the disk does."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self._disk = disk
        self._current: Prepared | None = None

    @property
    def appendable(self) -> bool:
        """Whether `append` may be called; else `replace` comes first."""
        return self._current is not None

    @property
    def length(self) -> int:
        """Bytes in the file; 0 while it is not appendable."""
        return self._current.length if self._current else 0

    @property
    def base(self) -> int:
        """Bytes the file had when it was last replaced; 0 while it is not appendable."""
        return self._current.base if self._current else 0

    def append(self, data: bytes) -> None:
        """Adds ``data``; after an error the file is as before, as far as the disk lets it."""
        current = self._current
        assert current is not None, "replace comes first"
        try:
            self._disk.write(current.descriptor, data, current.length)
            self._disk.sync(current.descriptor)
        except OSError:
            with suppress(OSError):
                self._disk.truncate(current.descriptor, current.length)
                self._disk.sync(current.descriptor)
            self._current = None
            self._close(current)
            raise
        current.length += len(data)

    def replace(self, content: bytes) -> None:
        """Makes ``content`` the whole file."""
        self._adopt(self.prepare(content, ".new"))

    def prepare(self, content: bytes, suffix: str) -> Prepared:
        """Brings ``content`` to disk under the file's name with another suffix."""
        path = self.path.with_suffix(suffix)
        fresh = Prepared(path, self._disk.create(path), len(content), len(content))
        try:
            self._disk.write(fresh.descriptor, content, 0)
            self._disk.sync(fresh.descriptor)
        except OSError:
            self._close(fresh)
            raise
        return fresh

    def mark(self) -> object:
        """Returns what tells the file that is there now from a later one."""
        return self._current

    def swap(self, fresh: Prepared, mark: object, copied: int) -> bool:
        """Makes a prepared file the file, with what was appended since it was ``copied`` bytes.

        Returns:
            Whether it did; not if the file is another than at ``mark``.
        """
        current = self._current
        if current is None or current is not mark:
            self._close(fresh)
            return False
        try:
            since = self._disk.read_at(current.descriptor, copied, current.length - copied)
            if len(since) != current.length - copied:
                raise OSError(None, f"{current.length - copied - len(since)} bytes are missing")
            if since:
                self._disk.write(fresh.descriptor, since, fresh.length)
                self._disk.sync(fresh.descriptor)
        except OSError:
            self._close(fresh)
            raise
        fresh.length += len(since)
        self._adopt(fresh)
        return True

    def _adopt(self, fresh: Prepared) -> None:
        before = self._current
        try:
            self._disk.rename(fresh.path, self.path)
        except OSError:
            self._close(fresh)
            raise
        self._current = None
        if before is not None:
            self._close(before)
        try:
            self._disk.sync_directory(self.path.parent)
        except OSError:
            self._close(fresh)
            raise
        self._current = fresh

    def close(self) -> None:
        """Lets the file go. The next change writes all of it again."""
        if self._current is not None:
            self._close(self._current)
        self._current = None

    def _close(self, file: Prepared) -> None:
        with suppress(OSError):
            self._disk.close(file.descriptor)
