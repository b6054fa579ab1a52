"""Runs the exercises of one file under the shim, in a slice of a simulated or a real GPU.

`support.exercise.process` is what runs in it.
"""

import functools
import importlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.gpu import Gpu, SimulatedGpu
from libvgpu.hook_table import read_hook_table
from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.region import create
from libvgpu.sim import PROFILES, Machine
from libvgpu.sim.spec import NEWEST_DRIVER
from support import CLIENT_PATH, ROOT, warm
from support.exercise import driver_sizes
from support.exercise.books import SIZES
from support.exercise.driver import EXERCISES
from support.exercise.driver_sizes import Sizes
from support.exercise.process import Result
from support.shim.slices import under_shim
from support.sim.driver import driver_version

FOLDER = ROOT / "tests/exercises"
CONTEXT_BYTES = 96 << 20  # of the simulated GPU
CONTEXTS = 3  # of a slice, at most
SLICE_BYTES = 1 << 30  # without them
FILES_AT_ONCE = 2

_done: dict[tuple[str, int], dict[str, Result]] = {}


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


def run_family(family: str, version: int | None = None) -> dict[str, Result]:
    """Runs a file's exercises on a simulated GPU, once in a test run; results by name.

    Args:
        family: the file's name.
        version: of the simulated driver, as ``VGPU_CUDA`` has it by default.

    A file may set ``SLICE`` (fields of `DeviceLimit`), ``GPUS`` and ``SIMULATED`` (how many the
    simulated machine has, and variables for its driver) and ``MEASURES`` (time: nothing of ours
    runs next to it, and after a failure it runs again).
    """
    place = family, version or driver_version()
    if place not in _done or any(result["failure"] for result in _done[place].values()):
        _done[place] = _run_family(*place)
    return _done[place]


def _run_family(family: str, version: int) -> dict[str, Result]:
    module = importlib.import_module(f"exercises.{family}")
    gpus = getattr(module, "GPUS", 1)
    with _simulated(gpus, version) as gpu:
        return run_on(gpu, _sizes(gpus, version), family, getattr(module, "SIMULATED", {}))


@contextmanager
def _simulated(gpus: int, version: int) -> Iterator[SimulatedGpu]:
    """The first GPU of a machine of so many."""
    profile = replace(PROFILES["h100-80g"], context_bytes=CONTEXT_BYTES)
    with tempfile.TemporaryDirectory(prefix="vgpu-exercise-") as scratch:
        machine = Machine.create([profile] * gpus, Path(scratch, "machine"), version)
        yield SimulatedGpu(machine, f"simulated {profile.product}")


@functools.cache
def _sizes(gpus: int, version: int) -> Sizes:
    """What the driver of such machines gives, asked of one."""
    with _simulated(gpus, version) as gpu:
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


def run_all(version: int, *, measuring: bool) -> dict[str, Result]:
    """Runs all files that measure time, or all others two at a time; results by ``family: name``.

    Args:
        version: of the simulated driver.
        measuring: which ones.
    """
    wanted = [family for family in families() if measures(family) == measuring]
    with ThreadPoolExecutor(1 if measuring else FILES_AT_ONCE) as threads:
        found = threads.map(lambda family: run_family(family, version), wanted)
        return {
            f"{family}: {name}": result
            for family, results in zip(wanted, found, strict=True)
            for name, result in results.items()
        }


def named(version: int) -> set[str]:
    """Returns the symbols that exercises name which run on a driver of that version.

    One of them that does not call every symbol it names fails.
    """
    for family in families():
        importlib.import_module(f"exercises.{family}")
    since = {row.symbol: row.since for row in read_hook_table()}
    return {
        symbol
        for each in EXERCISES.values()
        for symbol in each.symbols
        if version >= NEWEST_DRIVER or all(since[other] <= version for other in each.symbols)
    }
