"""A small file that is only ever replaced whole, and kept over a power cut.

A reader sees the old content or the new one, however the writer ended. The caller keeps two writers
apart.
"""

from contextlib import suppress
from pathlib import Path

from .disk import Disk


def replace_file(path: Path, content: bytes, disk: Disk) -> None:
    """Makes ``content`` the whole file.

    Raises:
        OSError: as the disk does; the old content may still be there, and is whole then.
    """
    fresh = path.with_suffix(".new")
    descriptor = disk.create(fresh)
    try:
        disk.write(descriptor, content, 0)
        disk.sync(descriptor)
    finally:
        with suppress(OSError):
            disk.close(descriptor)
    disk.rename(fresh, path)
    disk.sync_directory(path.parent)
