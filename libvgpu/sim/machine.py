"""Simulated machines from Python: made, opened, read and removed.

A machine is a directory with the file ``machine`` that all its processes map (sim/core/layout.h
says how they agree without locks), and a text file ``about`` with its identifier and GPUs, for
programs that do not map it. Each process that reads it here takes one of its 256 process
slots until the `Machine` is garbage.
"""

import fcntl
import os
import shutil
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .._native import ffi, lib
from ..artifacts import SIM_BINARY_DIR, SIM_LIBRARY_DIR
from ..driver_releases import DriverRelease, release_of_cuda, release_of_version
from ..errors import SimulationError
from ..sizes import parse_size
from . import mig_machine
from .books import ClientBooks, DeviceBooks, SimDevice
from .damage import cannot_make, cannot_open
from .faults import CallFaults, DeviceFaults, NvmlFault
from .identity import fill_identities, read_profile, text
from .mig import Placed
from .profiles import Profile
from .spec import DEFAULT_DRIVER, format_driver_version

#: Environment variable: host memory for a machine that is made, half of the host's without it.
HOST_MEMORY = "VGPU_SIM_HOST_MEMORY"
#: What NVML can be told of, under the name that `Machine.raise_event` takes.
EVENTS = {
    "xid": lib.SIM_EVENT_XID,
    "ecc_single": lib.SIM_EVENT_ECC_SINGLE,
    "ecc_double": lib.SIM_EVENT_ECC_DOUBLE,
}


class Machine:
    """A simulated machine; make one with `create`, `open` or `acquire`.

    Attributes:
        directory: where it lies.
        devices: its GPUs.
        owner_fd: holds the lock of the process that it belongs to, where it belongs to one.
    """

    def __init__(self, directory: Path, native: Any) -> None:
        self.directory = directory
        self._native = native
        self.owner_fd: int | None = None
        self.devices = tuple(self._device(i) for i in range(lib.sim_machine_gpu_count(native)))

    @classmethod
    def create(
        cls,
        profiles: Sequence[Profile],
        directory: Path,
        driver_version: int = DEFAULT_DRIVER,
        release: DriverRelease | None = None,
    ) -> "Machine":
        """Makes a machine with these GPUs in ``directory``, which may exist without one.

        Any user whose processes reach the directory can use it.

        Args:
            profiles: of its GPUs, in order.
            directory: where it is to lie.
            driver_version: of the driver API, 13000 for CUDA 13.0.
            release: of the driver; the one that brought this version of the driver API by default.

        Raises:
            SimulationError: there is one already, or the directory cannot be written.
            UsageError: ``VGPU_SIM_HOST_MEMORY`` is not a size.
        """
        backing_bytes = _backing_bytes()
        identities = ffi.new("struct sim_device_identity[]", len(profiles))
        fill_identities(identities, profiles)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod(0o755)
        except OSError as error:
            raise cannot_make(directory, error.errno or 0) from error
        options = ffi.new(
            "struct sim_machine_options *",
            {
                "driver_version": driver_version,
                "backing_bytes": backing_bytes,
                "release": _native_release(release or release_of_cuda(driver_version)),
            },
        )
        status = lib.sim_machine_create(
            os.fsencode(directory), uuid.uuid4().hex.encode(), options, identities, len(profiles)
        )
        if status < 0:
            raise cannot_make(directory, -status)
        machine = cls.open(directory)
        for index, profile in enumerate(profiles):
            if profile.mig_layout is not None:
                status = mig_machine.cut(machine._native, index, profile)
                if status < 0:
                    raise cannot_make(directory, -status)
        machine.describe()
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
            raise cannot_open(directory, -status)
        return cls(directory, ffi.gc(result[0], lib.sim_machine_close))

    def describe(self) -> None:
        """Writes the file ``about`` unless it is there and of this machine.

        Raises:
            SimulationError: it cannot be written.
        """
        about = self.directory / "about"
        lines = [f"identifier {self.identifier}"]
        lines += [f"device {device.uuid}" for device in self.devices]
        draft = self.directory / f"about.{os.getpid()}"
        try:
            if about.exists() and about.read_text().splitlines() == lines:
                return
            draft.write_text("\n".join(lines) + "\n")
            draft.chmod(0o644)
            draft.replace(about)
        except OSError as error:
            raise cannot_make(self.directory, error.errno or 0) from error

    @property
    def instances(self) -> tuple[SimDevice, ...]:
        """The MIG instances that can be used now, by GPU and id."""
        return tuple(
            self._device(instance.device)
            for gpu in range(len(self.devices))
            for instance in mig_machine.instances(self._native, gpu)
            if instance.has_compute
        )

    def mig_layout(self, gpu: int) -> tuple[Placed, ...] | None:
        """Returns what a GPU is cut into now, by start; None where it is not in MIG mode."""
        return mig_machine.layout(self._native, gpu, self.devices[gpu].profile.mig_profiles)

    @property
    def identifier(self) -> str:
        """The machine's own name, the same wherever its directory is mounted."""
        return text(lib.sim_machine_identifier(self._native))

    @property
    def driver_version(self) -> int:
        """Version of the driver API, 13000 for CUDA 13.0."""
        return int(lib.sim_machine_driver_version(self._native))

    @property
    def release(self) -> DriverRelease:
        """The release of its driver."""
        return release_of_version(text(lib.sim_machine_release(self._native).version))

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """Returns the environment in which a program runs on this machine.

        Args:
            base: what to add it to; this process's environment by default.
        """
        env = dict(os.environ if base is None else base)
        env["VGPU_SIM_MACHINE"] = str(self.directory)
        env["VGPU_SIM_PYTHON"] = sys.executable  # of the MPS tool
        env["LD_LIBRARY_PATH"] = _before(SIM_LIBRARY_DIR, env.get("LD_LIBRARY_PATH"))
        cuda = format_driver_version(self.driver_version)
        for other in (f"cuda-{cuda}", f"driver-{self.release.name}"):
            if (SIM_LIBRARY_DIR / other).is_dir():  # the default's lies above
                env["LD_LIBRARY_PATH"] = _before(SIM_LIBRARY_DIR / other, env["LD_LIBRARY_PATH"])
        env["PATH"] = _before(SIM_BINARY_DIR, env.get("PATH", os.defpath))
        return env

    def books(self) -> tuple[DeviceBooks, ...]:
        """Returns the books of each GPU, then of each MIG instance, settled up to now."""
        return tuple(self._read_books(device) for device in self.devices + self.instances)

    def set_compute_mode(self, index: int, mode: int) -> None:
        """Sets the compute mode of a GPU (NVML's number: 0 default, 2 prohibited, 3 exclusive)."""
        self._checked(index, lib.sim_machine_set_compute_mode(self._native, index, mode))

    # ---- faults: faults.py says what they mean ---------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps apart those who read faults, change and write them."""
        with open(self.directory / "machine", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def device_faults(self, index: int) -> DeviceFaults:
        """Returns what goes wrong on a GPU."""
        faults = ffi.new("struct sim_device_faults *")
        self._checked(index, lib.sim_machine_read_device_faults(self._native, index, faults))
        nvml = [NvmlFault(text(each.function), int(each.answer)) for each in faults.nvml]
        return DeviceFaults(
            bool(faults.lost),
            faults.broken_code,
            faults.broken_ns,
            faults.failing_allocations,
            tuple(each for each in nvml if each.function),
        )

    def set_device_faults(self, index: int, faults: DeviceFaults) -> None:
        """Sets what goes wrong on a GPU."""
        native = ffi.new(
            "struct sim_device_faults *",
            [
                faults.lost,
                faults.broken_code,
                faults.broken_ns,
                faults.failing_allocations,
                [(each.function.encode(), each.answer) for each in faults.nvml],
            ],
        )
        self._checked(index, lib.sim_machine_write_device_faults(self._native, index, native))

    def call_faults(self) -> CallFaults:
        """Returns what goes wrong in every driver call."""
        faults = ffi.new("struct sim_call_faults *")
        lib.sim_machine_read_call_faults(self._native, faults)
        return CallFaults(faults.delay_ns, faults.code, faults.code_count)

    def set_call_faults(self, faults: CallFaults) -> None:
        """Sets what goes wrong in every driver call."""
        native = ffi.new(
            "struct sim_call_faults *", [faults.delay_ns, faults.code, faults.code_count]
        )
        lib.sim_machine_write_call_faults(self._native, native)

    def raise_event(self, index: int, event: str, data: int) -> None:
        """Tells NVML's listeners of something in `EVENTS`; an ECC error is counted, too."""
        self._checked(index, lib.sim_machine_raise_event(self._native, index, EVENTS[event], data))

    def ecc_errors(self, index: int) -> tuple[int, int]:
        """Returns how many ECC errors a GPU has had: corrected, uncorrected."""
        counts = ffi.new("uint64_t[2]")
        lib.sim_machine_ecc_errors(self._native, index, counts, counts + 1)
        return int(counts[0]), int(counts[1])

    def _checked(self, index: int, status: int) -> None:
        if status < 0:
            raise SimulationError(f"simulated machine {self.directory} has no GPU {index}")

    def remove(self) -> None:
        """Removes the machine's directory; processes that still use it keep what they mapped."""
        shutil.rmtree(self.directory, ignore_errors=True)
        if self.owner_fd is not None:
            os.close(self.owner_fd)
            self.owner_fd = None

    def _device(self, index: int) -> SimDevice:
        identity = ffi.new("struct sim_device_identity *")
        lib.sim_machine_identity(self._native, index, identity)
        gpu = identity.gpu - 1 if identity.gpu else None
        profile = read_profile(identity)
        if gpu is None:
            return SimDevice(index, text(identity.uuid), profile)
        return SimDevice(index, text(identity.uuid), profile, gpu, identity.instance)

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
            books.memory_peak_bytes,
            books.backed_bytes,
            books.busy_ns,
            books.clock_ns,
            clients,
        )


def _native_release(release: DriverRelease) -> dict[str, Any]:
    return {
        "version": release.version.encode(),
        "process_entry_bytes": release.process_entry_bytes,
        "lists_unseen": release.lists_unseen,
    }


def _backing_bytes() -> int:
    """How much of the host's memory may stand behind what is written to the GPUs."""
    text = os.environ.get(HOST_MEMORY)
    return parse_size(text, HOST_MEMORY) if text else _host_memory_bytes() // 2


def _host_memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _before(first: Path, rest: str | None) -> str:
    return f"{first}{os.pathsep}{rest}" if rest else str(first)
