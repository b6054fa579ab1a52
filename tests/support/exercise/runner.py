"""Runs the exercises of one file under the shim, in a slice of a simulated or a real GPU.

`support.exercise.process` is what runs in it.
"""

import functools
import importlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.gpu import Gpu
from libvgpu.driver_releases import DriverRelease, release_of_cuda
from libvgpu.hook_table import read_hook_table
from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.region import create
from libvgpu.sim import PROFILES, Machine
from support import CLIENT_PATH, ROOT, warm
from support.exercise import driver_sizes
from support.exercise.books import SIZES
from support.exercise.driver import EXERCISES
from support.exercise.driver_sizes import Sizes
from support.exercise.process import Result
from support.shim.slices import under_shim
from support.sim.driver import driver_version
from support.sim.gpu import SimulatedGpu

FOLDER = ROOT / "tests/exercises"
CONTEXT_BYTES = 96 << 20  # of the simulated GPU
CONTEXTS = 3  # of a slice, at most
SLICE_BYTES = 1 << 30  # without them

_done: dict[tuple[str, str], dict[str, Result]] = {}


def families() -> tuple[str, ...]:
    """Returns the names of the files with exercises."""
    return tuple(sorted(p.stem for p in FOLDER.glob("*.py") if p.stem != "__init__"))


def exercises_of(family: str) -> tuple[str, ...]:
    """Returns the names of a file's exercises, in their order."""
    importlib.import_module(f"exercises.{family}")
    return tuple(name for place, name in EXERCISES if place == family)


def measures(family: str) -> bool:
    """Whether a file's exercises measure time."""
    return getattr(importlib.import_module(f"exercises.{family}"), "MEASURES", False)


def run_family(family: str, release: DriverRelease | None = None) -> dict[str, Result]:
    """Runs a file's exercises on a simulated GPU, once in a test run; results by name.

    Args:
        family: the file's name.
        release: of the simulated driver; by default the one of ``VGPU_CUDA``.

    A file may set ``SLICE`` (fields of `DeviceLimit`), ``GPUS`` and ``SIMULATED`` (how many the
    simulated machine has, and variables for its driver) and ``MEASURES`` (time: nothing of ours
    runs next to it, and after a failure it runs again).
    """
    release = release or release_of_cuda(driver_version())
    place = family, release.name
    if place not in _done or any(result["failure"] for result in _done[place].values()):
        _done[place] = _run_family(family, release)
    return _done[place]


def _run_family(family: str, release: DriverRelease) -> dict[str, Result]:
    module = importlib.import_module(f"exercises.{family}")
    gpus = getattr(module, "GPUS", 1)
    with _simulated(gpus, release) as gpu:
        return run_on(gpu, _sizes(gpus, release), family, getattr(module, "SIMULATED", {}))


@contextmanager
def _simulated(gpus: int, release: DriverRelease) -> Iterator[SimulatedGpu]:
    """The first GPU of a machine of so many."""
    profile = replace(PROFILES["h100-80g"], context_bytes=CONTEXT_BYTES)
    with tempfile.TemporaryDirectory(prefix="vgpu-exercise-") as scratch:
        directory = Path(scratch, "machine")
        machine = Machine.create([profile] * gpus, directory, release.cuda_version, release)
        yield SimulatedGpu(machine, f"simulated {profile.product}")


@functools.cache
def _sizes(gpus: int, release: DriverRelease) -> Sizes:
    """What the driver of such machines gives, asked of one."""
    with _simulated(gpus, release) as gpu:
        return sizes_of(gpu)


def sizes_of(gpu: Gpu) -> Sizes:
    """Returns what the driver of a GPU gives, on which nothing runs."""
    return driver_sizes.ask(gpu.uuid, gpu.environment(_base()))


def run_on(
    gpu: Gpu, sizes: Sizes, family: str, more: Mapping[str, str] | None = None
) -> dict[str, Result]:
    """Runs a file's exercises in a process of their own, in a slice of a GPU; results by name.

    Args:
        gpu: a simulated or a real one.
        sizes: what its driver gives; of another GPU of the same kind, too.
        family: the file's name.
        more: variables for that process.
    """
    module = importlib.import_module(f"exercises.{family}")
    sizes = replace(sizes, uuid=gpu.uuid)
    limit = DeviceLimit(
        uuid=gpu.uuid,
        memory_limit_bytes=SLICE_BYTES + CONTEXTS * sizes.context_bytes,
        context_bytes=sizes.context_bytes,
        **getattr(module, "SLICE", {}),
    )
    with tempfile.TemporaryDirectory(prefix="vgpu-exercise-") as scratch:
        directory = Path(scratch, "slice")
        create(directory, ContainerLimits("test", Family.VGPU, (limit,)))
        done = warm.run(
            ["-m", "support.exercise.process", family],
            gpu.environment(_base())
            | under_shim(directory)
            | {SIZES: sizes.to_json()}
            | dict(more or {}),
        )
    assert done.returncode == 0, done.stderr
    results: dict[str, Result] = json.loads(done.stdout.splitlines()[-1])
    for result in results.values():
        if result["failure"]:
            result["failure"] += f"\nThe process said:\n{done.stderr}"
    return results


def _base() -> dict[str, str]:
    """The environment of a client, before it has a GPU."""
    return {**os.environ, "PYTHONPATH": CLIENT_PATH}


def hooked(release: DriverRelease) -> set[str]:
    """Returns the hooked symbols that a driver has."""
    return {row.symbol for row in read_hook_table() if row.is_hooked} - _missing(release)


def named(release: DriverRelease, wanted: Sequence[str] = ()) -> set[str]:
    """Returns the symbols that exercises name which run on a driver.

    One of them that does not call every symbol it names fails.

    Args:
        release: of the driver.
        wanted: the files; all by default.
    """
    missing = _missing(release)
    return {
        symbol
        for family in wanted or families()
        for name in exercises_of(family)
        for symbol in EXERCISES[family, name].symbols
        if missing.isdisjoint(EXERCISES[family, name].symbols)
    }


def _missing(release: DriverRelease) -> set[str]:
    """Returns the symbols of the table of hooks that a driver does not have."""
    table = read_hook_table()
    return set(release.lacks) | {row.symbol for row in table if row.since > release.cuda_version}
