"""What no real GPU has been asked yet, each with what the simulated one is expected to give.

They are the experiments of a list of fifteen that have no place in another module: local memory is
in ``memory``, the runtime API and frameworks in ``frameworks``, pairs that poll in ``rows``. A
program prints numbers, and a row says what each of them is. What a real GPU gives otherwise is a
fault of the simulated one.
"""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from libvgpu.errors import VgpuError
from libvgpu.limits import ContainerLimits, DeviceLimit, Family

from ..clients import run
from ..figure import Measurement
from ..gpu import Gpu
from ..nulldriver import built_client
from ..repeats import say
from ..slices import create
from .holding import in_slice

_SECONDS = 120
#: name, unit, expected of the simulated GPU, and how far off it may be.
Expected = tuple[str, str, float, float]


@dataclass(frozen=True, slots=True)
class Experiment:
    """One program, and what is expected of it.

    Attributes:
        title: as it is shown.
        program: its source in ``native`` or ``tests/native``.
        arguments: of it; ``RATE`` stands for the rounds of a kernel in a millisecond.
        core_percent: its share in a slice; None: it is bare.
        expected: of each number that it prints; of none: that it ends well.
        is_of_bare: whether a number is told in percent of the same bare.
    """

    title: str
    program: str
    arguments: tuple[str, ...]
    core_percent: int | None
    expected: tuple[Expected, ...]
    is_of_bare: bool = False


_ENDS: Expected = ("ends well", "1 or 0", 1, 0)


def _asked(
    title: str, what: str, core_percent: int | None, *expected: Expected, is_of_bare: bool = False
) -> Experiment:
    arguments = (what, "RATE")
    return Experiment(title, "experiments_client", arguments, core_percent, expected, is_of_bare)


def _waiting(title: str, what: str, percent: int) -> Experiment:
    told = f"{title}, {percent} %"
    return _asked(told, what, percent, ("share of bare", "%", 100, 1), is_of_bare=True)


def _event_rows() -> tuple[Expected, ...]:
    """A call that its thread has made none before for more than 5 us takes 15 us more."""
    return tuple(
        (f"{call}, {gap} us after the last call", "ns", ns + 15_000 * (gap > 5), 150)
        for gap in (0, 5, 15, 50, 200)
        for call, ns in (("cuEventRecord", 1106), ("cuEventQuery", 1440))
    )


def _loads(us: float) -> tuple[Expected, ...]:
    return ("middle", "us", us, 5), ("longest", "us", us, 5)


QUICK = (
    _asked(
        "NVML",
        "nvml",
        None,
        ("memory info, 1 context", "us", 0, 1),
        ("process list, 1 context", "us", 0, 1),
        ("memory info, 32 contexts", "us", 0, 1),
        ("process list, 32 contexts", "us", 0, 1),
    ),
    *(_waiting("1 ms kernel, 1 ms host function", "host", percent) for percent in (60, 80)),
    *(_waiting("1 ms kernel, 1 ms for a value", "value", percent) for percent in (60, 80)),
    _asked("events", "events", None, *_event_rows()),
)
EXPERIMENTS = (
    *QUICK,
    _asked("load of a small cubin, of 500, bare", "loads", None, *_loads(14.1)),
    _asked("load of a small cubin, of 500, in a slice", "loads", 50, *_loads(24.8)),
    *(
        Experiment(
            f"64 MiB shared by {title}",
            "sharing_client",
            (what,),
            None,
            (
                ("processes grow with the importer", "MiB", 0, 0.5),
                ("GPU grows with the importer", "MiB", 0, 0.5),
            ),
        )
        for what, title in (("ipc", "IPC"), ("posix", "a descriptor"))
    ),
    Experiment(
        "20000 captures next to launches",
        "captures_next_to_work",
        ("20000", "launches"),
        50,
        (("failed", "captures", 0, 0), ("with strange nodes", "graphs", 0, 0)),
    ),
    Experiment(
        "chain of dependent 5 us kernels, 50 %",
        "dependent_chain",
        ("5", "100", "0", "2", "0", "0"),
        50,
        (("share of bare", "%", 51.2, 1),),
        is_of_bare=True,
    ),
    Experiment("frees a second after its end began", "late_free", ("later",), 50, (_ENDS,)),
    Experiment(
        "green context, two threads, 1 ms kernels, 50 %",
        "green_threads",
        ("1000", "2"),
        50,
        (("share of bare", "%", 50, 1),),
        is_of_bare=True,
    ),
    _asked(
        "50 % after 10 s without work",
        "idle",
        50,
        ("first 100 ms", "%", 74, 5),
        ("fullest 100 ms then", "%", 50, 5),
        ("emptiest 100 ms then", "%", 50, 5),
    ),
)


def measure(
    gpu: Gpu, rounds_per_ms: int, experiments: Sequence[Experiment] = EXPERIMENTS
) -> list[Measurement]:
    """Does experiments; one that fails says why and the others go on.

    Args:
        gpu: where, with nobody else on it.
        rounds_per_ms: of its kernels, as `spin_rate` measures.
        experiments: which ones.
    """
    found: list[Measurement] = []
    for each in experiments:
        say(each.title)
        try:
            values: list[float | None] = [*_values(gpu, rounds_per_ms, each)]
        except VgpuError as error:
            values, why = [None] * len(each.expected), error.message
        else:
            why = ""
        found += [
            Measurement(each.title, gpu.title, name, unit, value, note=why,
                        simulated=aim, tolerance=off_by)
            for value, (name, unit, aim, off_by) in zip(values, each.expected, strict=True)
        ]  # fmt: skip
    return found


def _values(gpu: Gpu, rounds_per_ms: int, each: Experiment) -> list[float]:
    """Returns what a program's numbers are, in the order of what is expected."""
    with built_client(gpu.driver, each.program) as program:
        words = [str(rounds_per_ms) if word == "RATE" else word for word in each.arguments]
        command = [str(program), *words]
        values = _numbers(command, gpu, each.core_percent)
        if each.is_of_bare:
            pairs = zip(values, _numbers(command, gpu, None), strict=True)
            values = [100 * held / bare for held, bare in pairs]
    if each.expected == (_ENDS,):
        return [1.0]
    if len(values) != len(each.expected):
        raise VgpuError(f"{each.program} told {len(values)} numbers")
    return [round(value, 2) for value in values]


def _numbers(command: Sequence[str], gpu: Gpu, core_percent: int | None) -> list[float]:
    environment = gpu.environment({"PATH": os.defpath})
    with tempfile.TemporaryDirectory(prefix="vgpu-experiment-") as name:
        if core_percent is not None:
            limit = DeviceLimit(
                gpu.uuid, gpu.memory_bytes, core_percent=core_percent, weight=core_percent
            )
            create(Path(name, "slice"), ContainerLimits("bench", Family.VGPU, (limit,)))
            environment |= in_slice(Path(name, "slice"))
        text = run(command, environment, _SECONDS)
    return [float(word) for word in text.split() if word[0].isdigit()]
