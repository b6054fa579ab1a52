"""Machines by name, and machines of one process.

They lie in `machines_root`. A named one stays until it is removed. An unnamed one belongs to the
process that asked for it, which holds a lock on its file ``owner``; the next `acquire` of the same
user removes those whose owner has died. What is made or removed there is made or removed under a
lock on the file ``.lock``.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import SimulationError
from .damage import DamagedMachine, cannot_open
from .joining import check_same, note_made
from .machine import Machine
from .spec import DEFAULT_DRIVER, MachineSpec

#: Before the name of a machine that several commands share, as in ``SPEC@NAME``.
NAMED = "@"
_UNNAMED_PREFIX = "run-"
_OWNER = "owner"


def machines_root() -> Path:
    """Returns the directory of this user's machines, made private to them if need be.

    Raises:
        SimulationError: it belongs to somebody else, or cannot be made.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    # Checked below to be ours.
    root = Path(runtime, "vgpu-sim") if runtime else Path(f"/tmp/vgpu-sim-{os.getuid()}")  # noqa: S108
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = root.lstat()
    except OSError as error:
        raise SimulationError(
            f"the directory of simulated machines {root} cannot be used: {error.strerror}",
            hint="set XDG_RUNTIME_DIR to a directory of yours",
        ) from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise SimulationError(
            f"{root} is not a directory of user {os.getuid()}",
            hint="remove it, or set XDG_RUNTIME_DIR",
        )
    return root


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    try:
        lock = open(root / ".lock", "a")  # noqa: SIM115 - closed below
    except OSError as error:
        raise SimulationError(
            f"the lock {root / '.lock'} cannot be taken: {error.strerror}",
            hint=f"make {root} writable to user {os.getuid()}, or set XDG_RUNTIME_DIR",
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def name_of(machine: Machine) -> str | None:
    """Returns the name under which a machine is shared; None for one of a process or elsewhere."""
    name = machine.directory.name
    return name.removeprefix(NAMED) if name.startswith(NAMED) else None


def named_directory(name: str) -> Path:
    """Returns where the machine of a name lies, or would."""
    return machines_root() / f"{NAMED}{name}"


def has_machine(directory: Path) -> bool:
    """Returns whether a machine lies in ``directory``.

    Raises:
        SimulationError: this user may not look.
    """
    try:
        return (directory / "machine").exists()
    except OSError as error:
        raise cannot_open(directory, error.errno or 0) from error


def acquire(spec: MachineSpec) -> Machine:
    """Returns the machine that ``spec`` asks for.

    A named one is joined or made, an unnamed one is made for this process.

    Raises:
        SimulationError: the name is taken by a machine of other GPUs or of another driver, its
            file is damaged, or a machine cannot be made.
    """
    root = machines_root()
    driver_version = spec.driver_version or DEFAULT_DRIVER
    with _locked(root):
        _sweep(root)
        if spec.name is None:
            return _make_unnamed(root, spec, driver_version)
        directory = named_directory(spec.name)
        if not has_machine(directory):
            shutil.rmtree(directory, ignore_errors=True)  # what a killed maker has left
            return _made(spec, directory, driver_version)
        machine = Machine.open(directory)
        machine.describe()
    check_same(machine, spec)
    return machine


def _made(spec: MachineSpec, directory: Path, driver_version: int) -> Machine:
    try:
        machine = Machine.create(spec.profiles, directory, driver_version, spec.release)
        note_made(directory, spec)
        return machine
    except SimulationError:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _make_unnamed(root: Path, spec: MachineSpec, driver_version: int) -> Machine:
    try:
        directory = Path(tempfile.mkdtemp(prefix=_UNNAMED_PREFIX, dir=root))
        owner_fd = os.open(directory / _OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SimulationError(
            f"a simulated machine cannot be made in {root}: {error.strerror}",
            hint="free space there, or set XDG_RUNTIME_DIR to a directory elsewhere",
        ) from error
    fcntl.flock(owner_fd, fcntl.LOCK_EX)
    try:
        machine = _made(spec, directory, driver_version)
    except SimulationError:
        os.close(owner_fd)
        raise
    machine.owner_fd = owner_fd
    return machine


def release(machine: Machine) -> None:
    """Gives up a machine from `acquire`: an unnamed one is removed, a named one stays."""
    if machine.owner_fd is not None:
        machine.remove()


def remove(name: str) -> None:
    """Removes the machine of a name, also a damaged one.

    Raises:
        SimulationError: there is none, or processes use it.
    """
    root = machines_root()
    with _locked(root):
        there = sorted(path.name for path in root.glob(f"{NAMED}*"))
        directory = root / f"{NAMED}{name.removeprefix(NAMED)}"
        if directory.name not in there:
            known = ", ".join(there) or "none"
            raise SimulationError(f"there is no simulated machine {name!r}; there are: {known}")
        using: set[int] = set()
        if has_machine(directory):
            with suppress(DamagedMachine):  # which nobody can use
                books = Machine.open(directory).books()
                using = {c.pid for book in books for c in book.clients if c.alive}
        if using:
            pids = ", ".join(str(pid) for pid in sorted(using))
            raise SimulationError(f"simulated machine {name!r} is in use by process {pids}")
        try:
            shutil.rmtree(directory)
        except OSError as error:
            raise SimulationError(
                f"{error.filename or directory} cannot be removed: {error.strerror}"
            ) from error


def sweep() -> int:
    """Removes unnamed machines whose owners have died; returns how many."""
    root = machines_root()
    with _locked(root):
        return _sweep(root)


def _sweep(root: Path) -> int:
    removed = 0
    for directory in root.glob(f"{_UNNAMED_PREFIX}*"):
        if _is_owned(directory):
            continue
        shutil.rmtree(directory, ignore_errors=True)
        removed += 1
    return removed


def _is_owned(directory: Path) -> bool:
    try:
        owner_fd = os.open(directory / _OWNER, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False  # its maker died before it took it, under our lock
    try:
        fcntl.flock(owner_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(owner_fd)
    return False
