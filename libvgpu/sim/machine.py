"""Simulated machines from Python: made, opened, read and removed.

A machine is a directory with the file ``machine`` that all its processes map (sim/core/layout.h
says how they agree without locks), and a text file ``about`` with its identifier and GPUs, for
programs that do not map it. Each process that reads it here takes one of its 256 process
slots until the `Machine` is garbage.

Machines that `acquire` makes lie in `machines_root`. A named one stays until it is removed. An
unnamed one belongs to the process that asked for it, which holds a lock on its file ``owner``; the
next `acquire` of the same user removes those whose owner has died. What is made or removed there is
made or removed under a lock on the file ``.lock``.
"""

import fcntl
import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .._native import ffi, lib
from ..artifacts import SIM_BINARY_DIR, SIM_LIBRARY_DIR
from ..errors import SimulationError
from .books import ClientBooks, DeviceBooks, SimDevice
from .profiles import NVIDIA_VENDOR_ID, Profile
from .spec import NEWEST_DRIVER, MachineSpec, format_driver_version

_FIRST_PCI_BUS = 0x10
_UNNAMED_PREFIX = "run-"
_OWNER = "owner"


class Machine:
    """A simulated machine; make one with `create`, `open` or `acquire`.

    Attributes:
        directory: where it lies.
        devices: its GPUs.
    """

    def __init__(self, directory: Path, native: Any, owner_fd: int | None = None) -> None:
        self.directory = directory
        self._native = native
        self._owner_fd = owner_fd
        self.devices = tuple(
            self._device(index) for index in range(lib.sim_machine_device_count(native))
        )

    @classmethod
    def create(
        cls, profiles: Sequence[Profile], directory: Path, driver_version: int = NEWEST_DRIVER
    ) -> "Machine":
        """Makes a machine with these GPUs in ``directory``, which may exist without one.

        Any user whose processes reach the directory can use it.

        Args:
            profiles: of its GPUs, in order.
            directory: where it is to lie.
            driver_version: of the driver API, 13000 for CUDA 13.0.

        Raises:
            SimulationError: there is one already, or the directory cannot be written.
        """
        identities = ffi.new("struct sim_device_identity[]", len(profiles))
        for index, profile in enumerate(profiles):
            _fill_identity(identities[index], index, profile)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod(0o755)
        except OSError as error:
            raise SimulationError(
                f"cannot make a simulated machine in {directory}: {error.strerror}"
            ) from error
        options = ffi.new(
            "struct sim_machine_options *",
            {"driver_version": driver_version, "backing_bytes": _host_memory_bytes() // 2},
        )
        status = lib.sim_machine_create(
            os.fsencode(directory), uuid.uuid4().hex.encode(), options, identities, len(profiles)
        )
        if status < 0:
            raise SimulationError(
                f"cannot make a simulated machine in {directory}: {os.strerror(-status)}"
            )
        machine = cls.open(directory)
        lines = [f"identifier {machine.identifier}"]
        lines += [f"device {device.uuid}" for device in machine.devices]
        (directory / "about").write_text("\n".join(lines) + "\n")
        (directory / "about").chmod(0o644)
        return machine

    @classmethod
    def open(cls, directory: Path) -> "Machine":
        """Opens the machine in ``directory``.

        Raises:
            SimulationError: there is none, or its file is damaged or of another version.
        """
        result = ffi.new("struct sim_machine **")
        status = lib.sim_machine_open(os.fsencode(directory), result)
        if status < 0:
            words = os.strerror(-status)
            if -status == _EPROTO:
                words = "its file `machine` is damaged or of another version"
            raise SimulationError(f"no simulated machine in {directory}: {words}")
        return cls(directory, ffi.gc(result[0], lib.sim_machine_close))

    @property
    def identifier(self) -> str:
        """The machine's own name, the same wherever its directory is mounted."""
        return _text(lib.sim_machine_identifier(self._native))

    @property
    def driver_version(self) -> int:
        """Version of the driver API, 13000 for CUDA 13.0."""
        return int(lib.sim_machine_driver_version(self._native))

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """Returns the environment in which a program runs on this machine.

        Args:
            base: what to add it to; this process's environment by default.
        """
        env = dict(os.environ if base is None else base)
        env["VGPU_SIM_MACHINE"] = str(self.directory)
        env["LD_LIBRARY_PATH"] = _before(SIM_LIBRARY_DIR, env.get("LD_LIBRARY_PATH"))
        older = SIM_LIBRARY_DIR / f"cuda-{format_driver_version(self.driver_version)}"
        if older.is_dir():  # its libcuda.so.1 lacks what came later
            env["LD_LIBRARY_PATH"] = _before(older, env["LD_LIBRARY_PATH"])
        env["PATH"] = _before(SIM_BINARY_DIR, env.get("PATH", os.defpath))
        return env

    def books(self) -> tuple[DeviceBooks, ...]:
        """Returns the books of each GPU, settled up to now."""
        return tuple(self._read_books(device) for device in self.devices)

    def set_compute_mode(self, index: int, mode: int) -> None:
        """Sets the compute mode of a GPU (NVML's number: 0 default, 2 prohibited, 3 exclusive)."""
        if lib.sim_machine_set_compute_mode(self._native, index, mode) < 0:
            raise SimulationError(f"simulated machine {self.directory} has no GPU {index}")

    def remove(self) -> None:
        """Removes the machine's directory; processes that still use it keep what they mapped."""
        shutil.rmtree(self.directory, ignore_errors=True)
        if self._owner_fd is not None:
            os.close(self._owner_fd)
            self._owner_fd = None

    def _device(self, index: int) -> SimDevice:
        identity = ffi.new("struct sim_device_identity *")
        lib.sim_machine_identity(self._native, index, identity)
        return SimDevice(index, _text(identity.uuid), _read_profile(identity.profile))

    def _read_books(self, device: SimDevice) -> DeviceBooks:
        books = ffi.new("struct sim_device_books *")
        lib.sim_machine_books(self._native, device.index, books)
        clients = tuple(
            ClientBooks(
                pid=client.pid,
                memory_bytes=client.memory_bytes,
                busy_ns=client.busy_ns,
                launches=client.launches,
                mps=bool(client.mps),
                percentage=client.percentage,
                alive=bool(client.alive),
                uid=client.uid,
                failed=bool(client.failed),
            )
            for client in books.clients[0 : books.client_count]
        )
        return DeviceBooks(
            device.uuid,
            books.memory_used_bytes,
            books.backed_bytes,
            books.busy_ns,
            books.clock_ns,
            clients,
        )


_EPROTO = 71


def _host_memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _text(characters: Any) -> str:
    value: bytes = ffi.string(characters)
    return value.decode()


def _before(first: Path, rest: str | None) -> str:
    return f"{first}{os.pathsep}{rest}" if rest else str(first)


# Fields of Profile that struct sim_profile has under the same name and form.
_SAME_FIELDS = (
    "memory_bytes", "context_bytes", "memory_bytes_per_second", "pcie_bytes_per_second",
    "l2_bytes", "sm_count", "cores_per_sm", "threads_per_sm", "blocks_per_sm",
    "shared_bytes_per_sm", "shared_bytes_per_block", "clock_khz", "memory_clock_khz",
    "memory_bus_bits", "power_limit_milliwatts",
)  # fmt: skip


def _read_profile(source: Any) -> Profile:
    """What the machine really is, which need not be one of the named profiles."""
    return Profile(
        name=_text(source.name),
        product=_text(source.product),
        compute_capability=(source.compute_major, source.compute_minor),
        pci_device_id=source.pci_device_id >> 16,
        **{field: int(getattr(source, field)) for field in _SAME_FIELDS},
    )


def _fill_identity(identity: Any, index: int, profile: Profile) -> None:
    target = identity.profile
    target.name = profile.name.encode()
    target.product = profile.product.encode()
    target.compute_major, target.compute_minor = profile.compute_capability
    target.pci_device_id = profile.pci_device_id << 16 | NVIDIA_VENDOR_ID
    for field in _SAME_FIELDS:
        setattr(target, field, getattr(profile, field))
    identity.uuid = f"GPU-{uuid.uuid4()}".encode()
    identity.serial = str(uuid.uuid4().int % 10**13).encode()
    identity.pci_bus = _FIRST_PCI_BUS + index
    identity.numa_node = 0


# ---- machines by name ----------------------------------------------------------------------------


def machines_root() -> Path:
    """Returns the directory of this user's machines, made private to them if need be.

    Raises:
        SimulationError: it belongs to somebody else.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    root = Path(runtime, "vgpu-sim") if runtime else Path(f"/tmp/vgpu-sim-{os.getuid()}")
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = root.lstat()
    except OSError as error:
        raise SimulationError(f"cannot use {root}: {error.strerror}") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise SimulationError(
            f"{root} is not a directory of user {os.getuid()}",
            hint="remove it, or set XDG_RUNTIME_DIR",
        )
    return root


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    with open(root / ".lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def acquire(spec: MachineSpec) -> Machine:
    """Returns the machine that ``spec`` asks for.

    A named one is joined or made, an unnamed one is made for this process.

    Raises:
        SimulationError: the name is taken by a machine of other GPUs.
    """
    root = machines_root()
    with _locked(root):
        _sweep(root)
        if spec.name is None:
            directory = Path(tempfile.mkdtemp(prefix=_UNNAMED_PREFIX, dir=root))
            owner_fd = os.open(directory / _OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(owner_fd, fcntl.LOCK_EX)
            machine = Machine.create(spec.profiles, directory)
            machine._owner_fd = owner_fd
            return machine
        directory = root / f"@{spec.name}"
        if not (directory / "machine").exists():
            return Machine.create(spec.profiles, directory)
        machine = Machine.open(directory)
    present = [device.profile.name for device in machine.devices]
    if present != [profile.name for profile in spec.profiles]:
        raise SimulationError(
            f"the simulated machine @{spec.name} has other GPUs: {', '.join(present)}",
            hint="use another name, or that machine as it is",
        )
    return machine


def release(machine: Machine) -> None:
    """Gives up a machine from `acquire`: an unnamed one is removed, a named one stays."""
    if machine._owner_fd is not None:
        machine.remove()


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
