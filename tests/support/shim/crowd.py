"""Tenants of one GPU under its arbiter, each with a busy program, and what each has of it."""

import subprocess
import time
from pathlib import Path

from libvgpu.arbitration import Arbiter
from libvgpu.limits import ComputeMode, ContainerLimits, DeviceLimit, Family, on_left_over
from libvgpu.region import create
from libvgpu.sim import Machine
from support.lines import expect
from support.shim.slices import Slice
from support.sim.programs import PRELUDE, busy

GIB = 1 << 30
MS = 1_000_000
WINDOW_SECONDS = 1.0


class Crowd:
    """Tenants of one GPU, each with one busy program, and their arbiter."""

    def __init__(self, machine: Machine, folder: Path, pipe: str = "") -> None:
        self.machine, self.folder, self.pipe = machine, folder, pipe
        self.parts: list[Slice] = []
        self.processes: list[subprocess.Popen[str]] = []
        self.arbiter = Arbiter()

    def join(
        self,
        percent: int,
        mode: ComputeMode,
        kernel_ns: int,
        after: str = "pass",
        *,
        is_arbitrated: bool = True,
    ) -> Slice:
        """Starts a program; without a percentage it has what the others leave over."""
        directory = self.folder / f"tenant-{len(self.parts)}"
        limit = DeviceLimit(
            self.machine.devices[0].uuid,
            GIB,
            core_percent=percent,
            compute_mode=mode,
            weight=percent,
            mps_pipe_directory=self.pipe,
        )
        limit = limit if percent else on_left_over(limit)
        create(directory, ContainerLimits(directory.name, Family.VGPU, (limit,)))
        part = Slice(self.machine, directory)
        self.parts.append(part)
        if is_arbitrated:
            self.arbiter.add(directory, 0)
        process = part.start(PRELUDE + busy(kernel_ns, after))
        expect(process)
        self.processes.append(process)
        return part

    def look(self) -> tuple[int, list[int]]:
        books = self.machine.books()[0]
        busy_ns = {client.pid: client.busy_ns for client in books.clients}
        return books.clock_ns, [busy_ns.get(each.pid, 0) for each in self.processes]

    def shares(self, seconds: float = WINDOW_SECONDS) -> list[float]:
        """Returns what percentage of the device each has in the next seconds."""
        start_ns, before = self.look()
        time.sleep(seconds)
        end_ns, after = self.look()
        return [100 * (b - a) / (end_ns - start_ns) for a, b in zip(before, after, strict=True)]

    def waits(self) -> list[int]:
        """Returns how many launches waited how long, of all of them (wait_histogram.h)."""
        counts = [part.usage().devices[0].delay_counts for part in self.parts]
        return [sum(bucket) for bucket in zip(*counts, strict=True)]

    def booked_ns(self) -> int:
        """Returns the GPU time in the containers' own books."""
        return sum(part.usage().devices[0].gpu_time_ns for part in self.parts)

    def close(self) -> None:
        for part in self.parts:
            part.close()
        self.arbiter.stop()


def split(shares: list[float]) -> list[float]:
    """Returns how the work done is divided, in percent."""
    return [100 * share / sum(shares) for share in shares]
