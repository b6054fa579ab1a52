"""The run directory: one private directory per allocation, and what is known about each.

``<run-dir>/allocations/<allocation-id>/`` holds `limits`, `usage`, `lock` (region.py) and
``meta.json``, which tells people whose it is. ``meta.json`` is replaced by rename and written last,
so a directory without one, or with an empty one, is half made and not listed.
"""

import json
import os
import shutil
import stat
from dataclasses import dataclass, fields
from pathlib import Path

from .errors import RegionError, RegionUnknownError, UsageError, naming
from .region_files import calls_for

META = "meta.json"
_SPARE_META = "meta.json.new"
#: Enough for what the agent writes.
_META_BYTES = 4096
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@dataclass(frozen=True, slots=True)
class AllocationMeta:
    """Whose an allocation is.

    Attributes:
        allocation_id: also the name of its directory.
        family: ``vgpu`` or ``mps``.
        source: ``kubelet`` (the node agent) or ``run`` (``vgpuctl run``).
        created_at: seconds since the epoch.
        namespace: of the pod, empty until it is known.
        pod: its name.
        container: its container's name.
        command: of ``vgpuctl run``.
        owner_pid: of ``vgpuctl run``; 0 for the agent's.
        memory_unit_bytes: of the family when the agent gave it; 0 where it is not said.
        name: that its owner gave a ``vgpuctl run``; empty where he gave none.
    """

    allocation_id: str
    family: str
    source: str
    created_at: float
    namespace: str = ""
    pod: str = ""
    container: str = ""
    command: tuple[str, ...] = ()
    owner_pid: int = 0
    memory_unit_bytes: int = 0
    name: str = ""


_FIELDS = tuple(field.name for field in fields(AllocationMeta))


@dataclass(frozen=True, slots=True)
class AllocationDir:
    """A listed allocation: where it is and whose."""

    directory: Path
    meta: AllocationMeta


def default_run_dir() -> Path:
    """Returns VGPU_RUN_DIR, else /run/vgpu for root, else a private directory of the user's.

    Raises:
        UsageError: /tmp/vgpu-<uid> exists and belongs to somebody else.
    """
    chosen = os.environ.get("VGPU_RUN_DIR")
    if chosen:
        return Path(chosen)
    if os.geteuid() == 0:
        return Path("/run/vgpu")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return Path(runtime) / "vgpu"
    # Private_directory refuses what others made.
    return private_directory(Path(f"/tmp/vgpu-{os.geteuid()}"))  # noqa: S108


def private_directory(path: Path) -> Path:
    """Makes ``path`` with mode 0700, or checks that the one that is there is ours alone.

    Raises:
        UsageError: it is a link, or another user's, or others may enter it.
    """
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        status = path.lstat()
        ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        if not ours or stat.S_IMODE(status.st_mode) & 0o077:
            raise UsageError(
                f"{path} is not a directory of yours alone (mode 0700); "
                "remove it or choose another with VGPU_RUN_DIR"
            ) from None
    return path


def allocation_directory(run_dir: Path, allocation_id: str) -> Path:
    """Returns where the allocation's files are (or would be)."""
    return run_dir / "allocations" / allocation_id


def make_room(directory: Path) -> None:
    """Makes sure that `write_meta` needs no further room in a new directory.

    Raises:
        OSError: the file system has too little room.
    """
    for path in (directory / META, directory / _SPARE_META):
        with naming(path), open(path, "xb") as file:
            os.posix_fallocate(file.fileno(), 0, _META_BYTES)


def write_meta(directory: Path, meta: AllocationMeta) -> None:
    """Writes ``meta.json`` so that a reader sees the old or the new one whole.

    Two files change places, so neither loses its room to a container that fills the file system.
    """
    path, spare = f"{directory}/{META}", f"{directory}/{_SPARE_META}"
    values = {name: getattr(meta, name) for name in _FIELDS}
    text = json.dumps(values).encode() + b"\n"
    descriptor = os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    with open(descriptor, "wb", buffering=0) as file:
        file.write(text.ljust(os.fstat(descriptor).st_size))
    if os.path.exists(path):
        _exchange(spare, path)
    else:
        os.replace(spare, path)


def _exchange(one: str, other: str) -> None:
    """Has two files change names; where that cannot be, the first replaces the second."""
    import ctypes  # takes as long as all else that a reader of these files imports

    libc = ctypes.CDLL(None)
    names = (_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other))
    if not hasattr(libc, "renameat2") or libc.renameat2(*names, _RENAME_EXCHANGE) != 0:
        os.replace(one, other)


def read_meta(directory: Path) -> AllocationMeta:
    """Returns whose ``directory`` is.

    Raises:
        RegionUnknownError: it cannot be read.
        RegionError: there is no ``meta.json``, or it is not one of ours.
    """
    path = f"{directory}/{META}"
    with calls_for(path, "read"), open(path, "rb") as file:
        content = file.read()
    try:
        raw = json.loads(content)
        values = {name: value for name, value in raw.items() if name in _FIELDS}
        values["command"] = tuple(values.get("command", ()))
        return AllocationMeta(**values)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise RegionError(f"{path} cannot be read: {error}") from error


def list_allocations(run_dir: Path) -> list[AllocationDir]:
    """Returns the allocations of ``run_dir``, oldest first; half-made ones are left out.

    Raises:
        RegionError: which there are cannot be told.
    """
    found = []
    root = run_dir / "allocations"
    try:
        with calls_for(root, "listed"):
            names = sorted(os.listdir(root))
    except RegionUnknownError:
        raise
    except RegionError:
        return []
    for name in names:
        try:
            found.append(AllocationDir(root / name, read_meta(root / name)))
        except RegionUnknownError:
            raise
        except RegionError:
            continue
    return sorted(found, key=lambda a: (a.meta.created_at, a.meta.allocation_id))


def remove(directory: Path) -> None:
    """Removes an allocation's directory; running processes keep the files they have mapped."""
    (directory / META).unlink(missing_ok=True)  # first, so that a half-removed one is not listed
    shutil.rmtree(directory, ignore_errors=True)
