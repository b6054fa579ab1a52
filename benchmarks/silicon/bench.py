"""Runs tenants side by side on one GPU and tells how much each got done, by the GPU's own clock.

What is compared with silicon is completed work against the same program alone and without a shim,
so a simulated and a real GPU are measured by one program in one way.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from libvgpu.arbitration import Arbiter
from libvgpu.artifacts import shim_path
from libvgpu.errors import VgpuError
from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.region import create

from ..clients import read_line
from ..gpu import Gpu, mps_server
from ..nulldriver import build_client
from ..tenant_programs import TenantClient

_START_SECONDS = 60.0
_ANSWER_SECONDS = 30.0
#: A completed launch is counted this often; what a window misses of it is under a thousandth.
_COUNT_EVERY_NS = 4_000_000


class Hold(Enum):
    """How tenants are held."""

    BARE = "bare"  # by nothing
    CAPS = "caps"  # each by its own cap
    WINDOWS = "windows"  # by turns of the arbiter


@dataclass(frozen=True, slots=True)
class Load:
    """One tenant.

    Attributes:
        client: what it does.
        core_percent: its share where it is held.
        mps_percent: its active-thread percentage where it is a client of MPS; 0: none set.
    """

    client: TenantClient
    core_percent: int = 100
    mps_percent: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """How long things are measured, in seconds."""

    warm_up: float
    length: float


class Bench:
    """A GPU and a client's program; made by `open_bench`."""

    def __init__(self, gpu: Gpu, directory: Path, program: Path, context_bytes: int) -> None:
        self.gpu = gpu
        self._directory, self._program, self._context_bytes = directory, program, context_bytes
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
            name = stack.enter_context(tempfile.TemporaryDirectory(dir=self._directory))
            variables = stack.enter_context(mps_server(self.gpu, Path(name, "mps"))) if mps else {}
            slices = self._slices(Path(name), loads) if hold is not Hold.BARE else []
            if hold is Hold.WINDOWS:
                arbiter = stack.enter_context(Arbiter())
                for directory in slices:
                    arbiter.add(directory, 0)
            programs = []
            for index, load in enumerate(loads):
                environment = self._environment(variables, load)
                if slices:
                    environment["LD_PRELOAD"] = str(shim_path())
                    environment["VGPU_DIR"] = str(slices[index])
                programs.append(stack.enter_context(self._started(load, environment)))
            return _measure(programs, window)

    def _slices(self, folder: Path, loads: Sequence[Load]) -> list[Path]:
        made = []
        for index, load in enumerate(loads):
            directory = folder / f"slice{index}"
            limit = DeviceLimit(
                self.gpu.uuid,
                self.gpu.memory_bytes // len(loads),
                context_bytes=self._context_bytes,
                core_percent=load.core_percent,
                weight=load.core_percent,
            )
            create(directory, ContainerLimits("bench", Family.VGPU, (limit,)))
            made.append(directory)
        return made

    def _environment(self, variables: Mapping[str, str], load: Load) -> dict[str, str]:
        environment = self.gpu.environment({"PATH": os.defpath}) | dict(variables)
        if load.mps_percent:
            environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(load.mps_percent)
        return environment

    @contextmanager
    def _started(
        self, load: Load, environment: Mapping[str, str]
    ) -> Iterator["subprocess.Popen[str]"]:
        client = load.client
        work_ns = client.kernel_ns * (client.nodes if client.form == "graph" else 1)
        command = [
            str(self._program),
            *client.arguments(self.gpu.memory_bytes_per_second),
            f"count_every={max(1, _COUNT_EVERY_NS // work_ns)}",
        ]
        process = subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            if read_line(process, _START_SECONDS) != "ready\n":
                raise VgpuError(f"{' '.join(command)} does not start")
            yield process
        finally:
            process.kill()
            process.communicate()


def _tell(process: "subprocess.Popen[str]", order: str) -> None:
    assert process.stdin is not None
    process.stdin.write(order + "\n")
    process.stdin.flush()


def _progress(programs: Sequence["subprocess.Popen[str]"]) -> list[tuple[int, int]]:
    """Returns how many launches of each are done, and when by the GPU's clock.

    Raises:
        VgpuError: one has ended, or does not answer.
    """
    found = []
    for process in programs:
        if process.poll() is not None:
            raise VgpuError(f"a program ended with status {process.returncode}")
        _tell(process, "tell")
    for process in programs:
        words = read_line(process, _ANSWER_SECONDS).split()
        if len(words) != 3 or words[0] != "progress":
            raise VgpuError(f"a program did not tell what it has done within {_ANSWER_SECONDS} s")
        found.append((int(words[1]), int(words[2])))
    return found


def _measure(programs: Sequence["subprocess.Popen[str]"], window: Window) -> list[float]:
    for process in programs:
        _tell(process, "go")
    time.sleep(window.warm_up)
    before = _progress(programs)
    time.sleep(window.length)
    after = _progress(programs)
    return [
        1e9 * (late[0] - early[0]) / (late[1] - early[1]) if late[1] > early[1] else 0.0
        for early, late in zip(before, after, strict=True)
    ]


@contextmanager
def open_bench(gpu: Gpu, context_bytes: int) -> Iterator[Bench]:
    """Builds the client's program against the GPU's driver.

    Args:
        gpu: where it runs.
        context_bytes: what a context takes, for the limits; 0: the shim measures it.

    Raises:
        VgpuError: there is no compiler, or it fails.
    """
    with tempfile.TemporaryDirectory(prefix="vgpu-silicon-") as name:
        driver = Path(name, "libcuda.so.1")
        driver.symlink_to(gpu.driver)
        yield Bench(gpu, Path(name), build_client("share_client", driver), context_bytes)
