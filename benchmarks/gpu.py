"""The GPU that a figure runs on: a simulated one, or the first real one of the machine.

Both are asked the same way, so that what is measured on silicon and in simulation is one program.
"""

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pynvml

from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.errors import VgpuError
from libvgpu.sim import Machine, Profile


class Gpu(Protocol):
    """One GPU that programs can be started on.

    Attributes:
        title: as it is shown, "simulated" in it where it is.
        uuid: as NVML and CUDA call it.
        memory_bytes: all that it has.
        memory_bytes_per_second: its bandwidth, about.
        driver: path of the libcuda that clients are linked against.
    """

    title: str
    uuid: str
    memory_bytes: int
    memory_bytes_per_second: int
    driver: Path

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Returns the environment in which a program finds it."""
        ...

    def used_bytes(self) -> int:
        """Returns what all processes have of its memory, by the device's own word."""
        ...


@dataclass
class SimulatedGpu:
    """A GPU of a machine of its own."""

    machine: Machine
    title: str
    driver: Path = SIM_LIBRARY_DIR / "libcuda.so.1"

    def __post_init__(self) -> None:
        self.uuid = self.machine.devices[0].uuid
        profile = self.machine.devices[0].profile
        self.memory_bytes = profile.memory_bytes
        self.memory_bytes_per_second = profile.memory_bytes_per_second

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Returns the environment in which a program finds it."""
        return self.machine.environment(base)

    def used_bytes(self) -> int:
        """Returns what all processes have of its memory."""
        return self.machine.books()[0].memory_used_bytes


@dataclass
class RealGpu:
    """The machine's first GPU."""

    title: str
    uuid: str
    memory_bytes: int
    memory_bytes_per_second: int
    driver: Path

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Returns the environment in which a program finds it, and no other GPU."""
        return {**base, "CUDA_VISIBLE_DEVICES": self.uuid}

    def used_bytes(self) -> int:
        """Returns what all processes have of its memory, and what the driver keeps."""
        handle = pynvml.nvmlDeviceGetHandleByUUID(self.uuid)
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)


@contextmanager
def simulated_gpu(profile: Profile) -> Iterator[SimulatedGpu]:
    """Gives a fresh simulated GPU, and removes its machine."""
    with tempfile.TemporaryDirectory(prefix="vgpu-gpu-") as name:
        machine = Machine.create([profile], Path(name, "machine"))
        yield SimulatedGpu(machine, f"simulated {profile.product}")


def _loaded_path(library: str) -> Path:
    """Returns where the loader finds a library.

    Raises:
        VgpuError: nowhere.
    """
    try:
        ctypes.CDLL(library)
    except OSError as error:
        raise VgpuError(
            f"there is no {library}: {error}", hint="--simulate h100 needs no GPU"
        ) from None
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if path.startswith("/") and Path(path).name.startswith(library.partition(".so")[0] + ".so"):
            return Path(path)
    raise VgpuError(f"{library} was loaded, but /proc/self/maps does not say from where")


@contextmanager
def real_gpu() -> Iterator[RealGpu]:
    """Gives the machine's first GPU, once it is known to be there and free.

    Raises:
        VgpuError: there is no driver, no NVML or no GPU, or somebody uses it.
    """
    driver = _loaded_path("libcuda.so.1")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise VgpuError(
            f"NVML cannot be used: {error}", hint="--simulate h100 needs no GPU"
        ) from None
    try:
        if pynvml.nvmlDeviceGetCount() == 0:
            raise VgpuError("this machine has no GPU", hint="--simulate h100 needs none")
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        others = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        name, uuid = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetUUID(handle)
        if others:
            raise VgpuError(
                f"GPU 0 ({name}) is in use by {len(others)} processes, the first is "
                f"{others[0].pid}: what is measured next to them means nothing"
            )
        memory_bytes = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
        width = pynvml.nvmlDeviceGetMemoryBusWidth(handle) // 8
        clock_hz = 1_000_000 * pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_MEM)
        bandwidth = 2 * width * clock_hz  # two transfers a clock
        yield RealGpu(str(name), str(uuid), memory_bytes, bandwidth, driver)
    finally:
        pynvml.nvmlShutdown()


@contextmanager
def mps_server(gpu: Gpu, directory: Path) -> Iterator[dict[str, str]]:
    """Runs an MPS daemon by hand; yields the variables that make a program its client.

    Raises:
        VgpuError: there is no control program, or the daemon does not start.
    """
    variables = {
        "CUDA_MPS_PIPE_DIRECTORY": str(directory / "pipe"),
        "CUDA_MPS_LOG_DIRECTORY": str(directory / "log"),
    }
    for path in variables.values():
        Path(path).mkdir(parents=True)
    environment = gpu.environment({"PATH": os.environ.get("PATH", os.defpath)}) | variables
    tool = shutil.which("nvidia-cuda-mps-control", path=environment["PATH"])
    if tool is None:
        raise VgpuError("there is no nvidia-cuda-mps-control on PATH")
    started = subprocess.run([tool, "-d"], env=environment, capture_output=True, text=True)
    if started.returncode != 0:
        raise VgpuError(f"the MPS daemon does not start: {started.stderr.strip()}")
    try:
        yield variables
    finally:
        subprocess.run([tool], input="quit -t 5\n", env=environment, capture_output=True, text=True)
