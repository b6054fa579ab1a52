"""The archive of a support bundle: written next to its place, and moved there whole.

So a reader never sees half a file, a failure leaves nothing, and a file that is there stays unless
it may be replaced. Only its maker may read it.
"""

import contextlib
import io
import os
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from libvgpu.errors import AllocationRefused

_MODE = 0o600


def check_place(path: Path, force: bool) -> None:
    """Refuses a place that a bundle cannot go to, before anything is read.

    Raises:
        AllocationRefused: there is something already, or no directory for it.
    """
    if path.is_dir():
        raise AllocationRefused(f"{path} is a directory; name a file in it")
    if not path.parent.is_dir():
        raise AllocationRefused(f"{path.parent} is not a directory; make it, or choose another")
    if not force and os.path.lexists(path):
        raise AllocationRefused(f"{path} is there already", hint="--force replaces it")


def write_archive(
    path: Path, top: str, files: Mapping[str, str], made_at_s: float, force: bool
) -> None:
    """Writes the files as a .tar.gz.

    Args:
        top: the directory in the archive that has all of them.
        files: text by name.
        made_at_s: seconds since the epoch, for the files' times.
        force: may replace what is there.

    Raises:
        AllocationRefused: something has come to that place meanwhile.
        OSError: it cannot be written; nothing is left of it then.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as raw:
            with tarfile.open(fileobj=raw, mode="w:gz") as archive:
                for member, text in files.items():
                    content = text.encode("utf-8", "replace")
                    entry = tarfile.TarInfo(f"{top}/{member}")
                    entry.size, entry.mtime, entry.mode = len(content), int(made_at_s), _MODE
                    archive.addfile(entry, io.BytesIO(content))
            raw.flush()
            os.fsync(raw.fileno())
        if force:
            os.replace(name, path)
            return
        try:
            os.link(name, path)  # unlike a rename it never replaces anything
        except FileExistsError:
            raise AllocationRefused(
                f"{path} was created meanwhile", hint="--force replaces it"
            ) from None
        except OSError:  # a file system without hard links
            check_place(path, force=False)
            os.replace(name, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
