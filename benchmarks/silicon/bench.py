"""Runs tenants side by side on one GPU and tells how much each got done, by the GPU's own clock.

What is compared with silicon is completed work against the same program alone and without a shim,
so a simulated and a real GPU are measured by one program in one way.
"""

import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from libvgpu.errors import VgpuError
from libvgpu.limits import ComputeMode

from ..clients import read_line, started, tell
from ..gpu import Gpu, mps_server
from ..nulldriver import built_client
from ..tenant_programs import TenantClient
from .holding import Hold, held

_START_SECONDS = 60.0
_ANSWER_SECONDS = 30.0
#: A completed launch is counted this often; what a window misses of it is under a thousandth.
_COUNT_EVERY_NS = 4_000_000


@dataclass(frozen=True, slots=True)
class Load:
    """One tenant.

    Attributes:
        client: what it does.
        core_percent: its share where it is held.
        mps_percent: its active-thread percentage where it is a client of MPS; 0: none set.
        mode: how its share holds.
    """

    client: TenantClient
    core_percent: int = 100
    mps_percent: int = 0
    mode: ComputeMode = ComputeMode.STRICT


@dataclass(frozen=True, slots=True)
class Window:
    """How long things are measured, in seconds."""

    warm_up: float
    length: float


class Bench:
    """A GPU and a client's program; made by `open_bench`."""

    def __init__(self, gpu: Gpu, directory: Path, program: Path, rounds_per_ms: int) -> None:
        self.gpu, self.rounds_per_ms = gpu, rounds_per_ms
        self._directory, self._program = directory, program
        self._alone: dict[tuple[TenantClient, bool], float] = {}

    def alone(self, client: TenantClient, window: Window, *, mps: bool = False) -> float:
        """Returns what a program gets done alone and bare, in launches a second; measured once."""
        key = client, mps
        if key not in self._alone:
            (self._alone[key],) = self.rates([Load(client)], Hold.BARE, window, mps=mps)
        return self._alone[key]

    def percents(
        self, loads: Sequence[Load], hold: Hold, window: Window, *, mps: bool = False
    ) -> list[float]:
        """Returns what each gets done next to the others, in percent of what it does alone.

        Raises:
            VgpuError: a program ends by itself.
        """
        rates = self.rates(loads, hold, window, mps=mps)
        whole = [self.alone(load.client, window) for load in loads]
        return [100 * rate / alone for rate, alone in zip(rates, whole, strict=True)]

    def rates(
        self, loads: Sequence[Load], hold: Hold, window: Window, *, mps: bool = False
    ) -> list[float]:
        """Returns what each gets done in launches a second.

        Raises:
            VgpuError: a program ends by itself.
        """
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=self._directory)))
            variables = stack.enter_context(mps_server(self.gpu, folder / "mps")) if mps else {}
            percents = [load.core_percent for load in loads]
            environments = stack.enter_context(
                held(self.gpu, folder, percents, hold, variables, loads[0].mode)
            )
            for load, environment in zip(loads, environments, strict=True):
                if load.mps_percent:
                    environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(load.mps_percent)
            return _measure(
                [
                    stack.enter_context(
                        started(self._command(load.client), environment, _START_SECONDS)
                    )
                    for load, environment in zip(loads, environments, strict=True)
                ],
                window,
            )

    def _command(self, client: TenantClient) -> list[str]:
        work_ns = client.kernel_ns * (client.nodes if client.form == "graph" else 1)
        return [
            str(self._program),
            *client.arguments(self.gpu.memory_bytes_per_second),
            f"rounds_per_ms={self.rounds_per_ms}",
            f"count_every={max(1, _COUNT_EVERY_NS // work_ns)}",
        ]


def _progress(programs: Sequence["subprocess.Popen[str]"]) -> list[tuple[int, int]]:
    """Returns how many launches of each are done, and when by the GPU's clock.

    Raises:
        VgpuError: one has ended, or does not answer.
    """
    found = []
    for process in programs:
        if process.poll() is not None:
            raise VgpuError(f"a program ended with status {process.returncode}")
        tell(process, "tell")
    for process in programs:
        words = read_line(process, _ANSWER_SECONDS).split()
        if len(words) != 3 or words[0] != "progress":
            raise VgpuError(f"a program did not tell what it has done within {_ANSWER_SECONDS} s")
        found.append((int(words[1]), int(words[2])))
    return found


def _measure(programs: Sequence["subprocess.Popen[str]"], window: Window) -> list[float]:
    for process in programs:
        tell(process, "go")
    time.sleep(window.warm_up)
    before = _progress(programs)
    time.sleep(window.length)
    after = _progress(programs)
    return [
        1e9 * (late[0] - early[0]) / (late[1] - early[1]) if late[1] > early[1] else 0.0
        for early, late in zip(before, after, strict=True)
    ]


@contextmanager
def open_bench(gpu: Gpu, rounds_per_ms: int) -> Iterator[Bench]:
    """Builds the client's program against the GPU's driver.

    Args:
        gpu: where it runs.
        rounds_per_ms: of the GPU's kernels, as `spin_rate` measures.

    Raises:
        VgpuError: there is no compiler, or it fails.
    """
    with built_client(gpu.driver, "share_client") as program:
        yield Bench(gpu, program.parent, program, rounds_per_ms)
