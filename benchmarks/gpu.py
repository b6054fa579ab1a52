"""The GPU that a figure runs on: the first one of the machine.

A simulated one (`simulated_gpu`) is found and asked in the same way, so that what is measured on
silicon and in simulation is one program.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.errors import VgpuError

from . import own_time
from .nvml import NvmlDevice, open_nvml

#: What would change how a program runs on the GPU, or what holds it.
_KEPT_OUT = ("CUDA_", "LD_PRELOAD", "LD_AUDIT", "VGPU_DIR", "VGPU_LOG")


#: By these a program finds a simulated GPU.
FOUND_BY = ("LD_LIBRARY_PATH", "VGPU_SIM_MACHINE")


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

    def process_bytes(self, pid: int) -> int | None:
        """Returns what one process has of it by the device's own word; None: it does not tell."""
        ...


@dataclass
class RealGpu:
    """The machine's first GPU."""

    title: str
    uuid: str
    memory_bytes: int
    memory_bytes_per_second: int
    driver: Path
    device: NvmlDevice

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Returns the environment in which a program finds it, and no other GPU.

        Ours comes along, since a machine may have its driver where only that says. In a time of its
        own only what is needed does: where things lie in a program's memory follows its variables.
        """
        ours = {name: value for name, value in os.environ.items() if not name.startswith(_KEPT_OUT)}
        if own_time.is_on():
            ours = {name: os.environ[name] for name in FOUND_BY} | own_time.passed_on(None)
        return {**ours, **base, "CUDA_VISIBLE_DEVICES": self.uuid}

    def used_bytes(self) -> int:
        """Returns what all processes have of its memory, and what the driver keeps."""
        return self.device.memory_bytes()[1]

    def process_bytes(self, pid: int) -> int | None:
        """Returns what one process has of it.

        In a PID namespace NVML knows it by another number; the only one there is must be it.
        """
        found = self.device.processes()
        if len(found) == 1:
            return found[0].used_bytes
        return next((each.used_bytes for each in found if each.pid == pid), None)


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
    with open_nvml() as nvml:
        if nvml.device_count() == 0:
            raise VgpuError("this machine has no GPU", hint="--simulate h100 needs none")
        device = nvml.device(0)
        name, others = device.name(), device.processes()
        if others:
            raise VgpuError(
                f"GPU 0 ({name}) is in use by {len(others)} "
                f"process{'es' if len(others) > 1 else ''}, the first is "
                f"{others[0].pid}: what is measured next to them means nothing"
            )
        # Who put the simulated libraries in the place of the real ones reads so in every row.
        simulated = "simulated " if SIM_LIBRARY_DIR in driver.resolve().parents else ""
        yield RealGpu(
            title=f"{simulated}{name}, driver {nvml.driver_version()}",
            uuid=device.uuid(),
            memory_bytes=device.memory_bytes()[0],
            memory_bytes_per_second=device.memory_bytes_per_second(),
            driver=driver,
            device=device,
        )


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
