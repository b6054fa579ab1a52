"""A simulated GPU for tests of what runs on a real one, asked by the books of its machine."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import own_time
from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.sim import Machine, Profile


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
        return self.machine.environment({**own_time.passed_on(None), **base})

    def used_bytes(self) -> int:
        """Returns what all processes have of its memory."""
        return self.machine.books()[0].memory_used_bytes

    def process_bytes(self, pid: int) -> int | None:
        """Returns what one process has of it."""
        clients = self.machine.books()[0].clients
        return next((each.memory_bytes for each in clients if each.pid == pid), None)


@contextmanager
def simulated_gpu(profile: Profile) -> Iterator[SimulatedGpu]:
    """Gives a fresh simulated GPU, and removes its machine."""
    with tempfile.TemporaryDirectory(prefix="vgpu-gpu-") as name:
        machine = Machine.create([profile], Path(name, "machine"))
        yield SimulatedGpu(machine, f"simulated {profile.product}")
