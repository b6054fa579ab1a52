"""What the checkpoint asks of the file system: a few calls in one place, so that tests can fail or
cut off each of them. No state; what a call promises about a power cut is said with it.
"""

import os
from pathlib import Path

_FILE_MODE = 0o600


class Disk:
    """The real file system. Every method raises OSError as the system does."""

    def read(self, path: Path, most_bytes: int) -> bytes:
        """Returns the first ``most_bytes`` bytes of a file."""
        with open(path, "rb") as file:
            # Not the most at once: as much room would be taken before a byte is read.
            return file.read(min(os.fstat(file.fileno()).st_size, most_bytes))

    def create(self, path: Path) -> int:
        """Makes an empty file, or empties the one that is there; returns its descriptor."""
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        return os.open(path, flags, _FILE_MODE)

    def write(self, descriptor: int, data: bytes, offset: int) -> None:
        """Writes all of ``data`` at ``offset``; after an error any part of it may be there."""
        view = memoryview(data)
        while view:
            written = os.pwrite(descriptor, view, offset)
            view, offset = view[written:], offset + written

    def read_at(self, descriptor: int, offset: int, length: int) -> bytes:
        """Returns ``length`` bytes at ``offset``, fewer where the file ends."""
        parts = []
        while length > 0:
            part = os.pread(descriptor, length, offset)
            if not part:
                break
            parts.append(part)
            offset, length = offset + len(part), length - len(part)
        return b"".join(parts)

    def truncate(self, descriptor: int, length: int) -> None:
        """Cuts a file back."""
        os.ftruncate(descriptor, length)

    def sync(self, descriptor: int) -> None:
        """Returns once the file's bytes and length outlive a power cut."""
        os.fdatasync(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        """Gives a file another name, in one step; kept by `sync_directory`."""
        os.replace(old, new)

    def sync_directory(self, path: Path) -> None:
        """Returns once the names in a directory outlive a power cut."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def close(self, descriptor: int) -> None:
        """Closes a descriptor."""
        os.close(descriptor)
