"""What a hooked call adds to a driver call, against no shim in the same run.

A small C client (``native/hooks_client.c``) calls one entry point in batches on a driver that
returns at once (``native/null_driver.c``), linked and through cuGetProcAddress, without a preload
library and with each one that is measured. One *round* starts the client once per subject right
after another; what a subject adds is the difference of the medians within a round, so that slow
drifts of the machine fall out. Shown are median and quartiles of these differences.

Instructions do not depend on the machine: callgrind counts them for two numbers of calls, and the
difference of the counts over the difference of the calls is what one call costs. So it is with
locked instructions, which differ by a factor of eight between machines (`callgrind`). Meanwhile the
clock counts how often it was read (``native/counted_clock.c``), since some of the work is done once
in so many milliseconds and a slow machine would do it for fewer calls.
"""

import os
import shutil
import statistics
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from libvgpu import artifacts, region
from libvgpu.errors import VgpuError
from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.sim import Machine, ideal_profile

from . import callgrind, clients
from .figure import Figure, Measurement, Options, spread
from .nulldriver import DEVICE_UUID, build_client, build_driver, build_preload

_LIMIT_BYTES = 1 << 30
_CONTEXT_BYTES = 1 << 20  # as the node agent says it
_PROFILE = "h100-80g"
_WAYS = {"elf": "linked", "getproc": "cuGetProcAddress"}
_BATCHES = 9
_RUN_TIMEOUT_SECONDS = 60
_COUNT_TIMEOUT_SECONDS = 120
_FEW_CALLS, _MANY_CALLS = 1000, 3000
OURS, NOBODY = "libvgpu", "no shim"


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that is called.

    Attributes:
        title: how it is shown.
        word: the client's word for it.
        core_percent: the share it is called under.
        calls: in a batch.
        processes: that call at once, all in one slice.
        is_told: the host's estimate of a context is in `limits`.
    """

    title: str
    word: str
    core_percent: int
    calls: int
    processes: int = 1
    is_told: bool = True


CASES = (
    Case("cuLaunchKernel, not capped", "launch", 100, 100_000),
    Case("cuLaunchKernel, capped, within budget", "launch", 50, 100_000),
    Case("cuMemAlloc + cuMemFree", "alloc", 100, 20_000),
    Case("cuMemAllocAsync + cuMemFreeAsync", "async", 100, 20_000),
)
#: Timed only, and linked only: what is counted and how it is looked up make no difference here.
CROWDS = (
    Case("cuMemAlloc + cuMemFree, 16 processes", "alloc", 100, 20_000, 16),
    Case("first context, 64 processes at once, simulated driver", "context", 100, 1, 64),
    Case("first context of 64, with no estimate yet", "context", 100, 1, 64, is_told=False),
)


@dataclass(frozen=True, slots=True)
class CallCost:
    """What a call executes, as a mean.

    Attributes:
        locked: instructions among them that are locked.
    """

    instructions: float
    locked: float


@dataclass(frozen=True, slots=True)
class Bench:
    """What is built once and used by every run: the client, and a fresh slice per run.

    Attributes:
        directory: where the null driver lies.
        client: the program that calls.
        machine: a simulated machine to run on in place of the null driver, on which nothing takes
            time, not even a first context.
    """

    directory: Path
    client: Path
    machine: Machine | None = None

    def environment(self, preload: Path | None, case: Case) -> dict[str, str]:
        """Returns the client's environment; with a preload library it holds a slice."""
        environment = {
            "PATH": os.defpath,
            "LD_LIBRARY_PATH": str(self.directory),
            # A rival is configured through its own variables.
            **{k: v for k, v in os.environ.items() if k.startswith(("CUDA_", "GPU_"))},
        }
        uuid, limit_bytes, context_bytes = DEVICE_UUID, _LIMIT_BYTES, _CONTEXT_BYTES
        if self.machine is not None:
            device = self.machine.devices[0]
            del environment["LD_LIBRARY_PATH"]
            environment = self.machine.environment(environment)
            uuid, limit_bytes = device.uuid, device.profile.memory_bytes
            context_bytes = device.profile.context_bytes
        if preload is not None:
            slice_directory = Path(tempfile.mkdtemp(dir=self.directory)) / "slice"
            limit = DeviceLimit(
                uuid,
                limit_bytes,
                context_bytes=context_bytes if case.is_told else 0,
                core_percent=case.core_percent,
            )
            region.create(slice_directory, ContainerLimits("benchmark", Family.VGPU, (limit,)))
            environment |= {"LD_PRELOAD": str(preload), "VGPU_DIR": str(slice_directory)}
        return environment

    def time_calls(self, preload: Path | None, case: Case, way: str) -> float:
        """Returns the median nanoseconds of one call in one run of the client.

        Where more processes than CPUs repeat a call, a call's time is that of its share of a CPU.
        """
        command = [str(self.client), case.word, way, str(case.calls), str(_BATCHES)]
        environment = self.environment(preload, case)
        if case.word == "context":
            outputs = clients.run_at_once(
                command, environment, _RUN_TIMEOUT_SECONDS, case.processes
            )
        else:
            with ThreadPoolExecutor(case.processes) as runners:
                runs = [
                    runners.submit(clients.run, command, environment, _RUN_TIMEOUT_SECONDS)
                    for _ in range(case.processes)
                ]
                outputs = [run.result() for run in runs]
        times_ns = [float(line) for output in outputs for line in output.split()]
        waiting = max(1.0, case.processes / len(os.sched_getaffinity(0)))
        return statistics.median(times_ns) / (waiting if case.calls > 1 else 1.0)

    def count(self, preload: Path | None, case: Case, way: str) -> CallCost:
        """Returns what one call executes, by callgrind.

        Raises:
            VgpuError: a part does not compile, the client fails, or nothing was counted.
        """
        totals = []
        clock = self.directory / "counted_clock.so"
        if not clock.exists():
            build_preload("counted_clock", self.directory)
        for calls in (_FEW_CALLS, _MANY_CALLS):
            report = self.directory / "callgrind.out"
            command = ["valgrind", *callgrind.OPTIONS, f"--callgrind-out-file={report}", "-q",
                       str(self.client), case.word, way, str(calls), "1"]  # fmt: skip
            environment = self.environment(preload, case)
            environment["LD_PRELOAD"] = f"{clock} {environment.get('LD_PRELOAD', '')}".strip()
            clients.run(command, environment, _COUNT_TIMEOUT_SECONDS)
            totals.append(callgrind.executed(report))
        few, many = totals
        calls = _MANY_CALLS - _FEW_CALLS
        return CallCost(
            (many.instructions - few.instructions) / calls, (many.locked - few.locked) / calls
        )


def _times(
    bench: Bench, case: Case, way: str, subjects: Mapping[str, Path], rounds: int
) -> list[Measurement]:
    title = f"{case.title} ({_WAYS[way]})"
    base: list[float] = []
    added: dict[str, list[float]] = {name: [] for name in subjects}
    failed: dict[str, str] = {}
    for _ in range(rounds):
        base.append(bench.time_calls(None, case, way))
        for name, library in subjects.items():
            if name in failed:
                continue
            try:
                added[name].append(bench.time_calls(library, case, way) - base[-1])
            except VgpuError as error:
                failed[name] = error.message
    results = [spread(title, NOBODY, "time", "ns/call", base)]
    for name in subjects:
        if name in failed:
            results.append(
                Measurement(title, name, "added time", "ns/call", None, note=failed[name])
            )
        else:
            results.append(spread(title, name, "added time", "ns/call", added[name]))
    return results


def _instructions(
    bench: Bench, case: Case, way: str, subjects: Mapping[str, Path]
) -> list[Measurement]:
    title = f"{case.title} ({_WAYS[way]})"
    quantity, unit = "added instructions", "per call"
    try:
        base = bench.count(None, case, way)
    except VgpuError as error:
        return [
            Measurement(title, name, quantity, unit, None, note=error.message) for name in subjects
        ]
    results = []
    for name, library in subjects.items():
        try:
            cost = bench.count(library, case, way)
        except VgpuError as error:
            results.append(Measurement(title, name, quantity, unit, None, note=error.message))
            continue
        locked = [cost.locked - base.locked]
        results += [
            spread(title, name, quantity, unit, [cost.instructions - base.instructions]),
            spread(title, name, "added locked instructions", unit, locked),
        ]
    return results


def measure(options: Options) -> list[Measurement]:
    """Takes the figure.

    Raises:
        VgpuError: there is no compiler, or the client fails without any shim.
    """
    subjects = {OURS: artifacts.shim_path()}
    if options.rival is not None:
        subjects[options.rival.name if options.rival.name != "libvgpu.so" else "--shim"] = (
            options.rival
        )
    counts = shutil.which("valgrind") is not None
    with tempfile.TemporaryDirectory(prefix="vgpu-bench-") as name:
        driver = build_driver(Path(name))
        bench = Bench(driver.parent, build_client("hooks_client", driver))
        results = []
        for case in CASES:
            for way in _WAYS:
                results += _times(bench, case, way, subjects, options.rounds)
                if counts:
                    results += _instructions(bench, case, way, subjects)
        machine = Machine.create([ideal_profile(_PROFILE)], Path(name, "machine"))
        simulated = replace(bench, machine=machine)
        for case in CROWDS:
            on = simulated if case.word == "context" else bench
            results += _times(on, case, "elf", subjects, options.rounds)
    if not counts:
        results.append(
            Measurement("all cases", OURS, "added instructions", "per call", None, needs_tool=True,
                        note="valgrind is not on PATH (apt install valgrind)")
        )  # fmt: skip
    return results


FIGURE = Figure(
    name="hooks",
    summary="what a hooked call adds, against no shim in the same run",
    label="null driver, CPU only",
    measure=measure,
)
