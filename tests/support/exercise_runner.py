"""Runs the exercises of one file under the shim, and starts the process that does.

``python -m support.exercise_runner FAMILY`` runs them in order of definition and prints a report as
JSON; one that fails does not keep the others from running, and one that names a symbol newer than
the driver, by its row in `hooks.def`, does not run. ``… FAMILY FUNCTION ARGUMENTS`` calls one
function for `Driver.elsewhere`.
"""

import importlib
import json
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from libvgpu.hook_table import read_hook_table
from libvgpu.sim import PROFILES, Machine
from libvgpu.sim.spec import NEWEST_DRIVER
from support import ROOT
from support.exercise import EXERCISES, Driver, Exercise
from support.simulated_driver import driver_version
from support.slices import make_slice
from support.waiting import PATIENCE_S

FOLDER = ROOT / "tests/exercises"
CONTEXT_BYTES = 96 << 20
SLICE_BYTES = 1 << 30
FILES_AT_ONCE = 2

#: What one exercise came to: the symbols it named, those it called, why it failed or "", and
#: those that came after the driver, for which it did not run.
Result = dict[str, Any]

_done: dict[tuple[str, int], dict[str, Result]] = {}


def families() -> tuple[str, ...]:
    """Returns the names of the files with exercises."""
    return tuple(sorted(p.stem for p in FOLDER.glob("*.py") if p.stem != "__init__"))


def measures(family: str) -> bool:
    """Whether a file's exercises measure time."""
    return getattr(importlib.import_module(f"exercises.{family}"), "MEASURES", False)


def run_family(family: str, version: int | None = None) -> dict[str, Result]:
    """Runs a file's exercises in a process of their own, once in a test run; results by name.

    Args:
        family: the file's name.
        version: of the simulated driver, as ``VGPU_CUDA`` has it by default.

    A file may set ``SLICE`` (what `make_slice` takes), ``GPUS`` (of the machine) and ``MEASURES``
    (time: nothing of ours runs next to it, and after a failure it runs again).
    """
    place = family, version or driver_version()
    if place not in _done or any(result["failure"] for result in _done[place].values()):
        _done[place] = _run_family(*place)
    return _done[place]


def _run_family(family: str, version: int) -> dict[str, Result]:
    module = importlib.import_module(f"exercises.{family}")
    profile = replace(PROFILES["h100-80g"], context_bytes=CONTEXT_BYTES)
    options = {"memory_bytes": SLICE_BYTES} | getattr(module, "SLICE", {})
    with tempfile.TemporaryDirectory(prefix="vgpu-exercise-") as scratch:
        machine = Machine.create(
            [profile] * getattr(module, "GPUS", 1), Path(scratch, "machine"), version
        )
        part = make_slice(machine, Path(scratch, "slice"), **options)
        done = subprocess.run(
            [sys.executable, "-m", "support.exercise_runner", family],
            env=part.environment(),
            text=True,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    results: dict[str, Result] = json.loads(done.stdout.splitlines()[-1])
    for result in results.values():
        if result["failure"]:
            result["failure"] += f"\nThe process said:\n{done.stderr}"
    return results


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


def run_elsewhere(
    function: Callable[..., Any], arguments: tuple[Any, ...], fds: tuple[int, ...]
) -> tuple[Any, set[str]]:
    """Returns what the function gave in a second process, and the symbols that it called."""
    done = subprocess.run(
        [sys.executable, "-m", "support.exercise_runner",
         Path(function.__code__.co_filename).stem, function.__name__, json.dumps(arguments)],
        pass_fds=fds, text=True, capture_output=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    value, called = json.loads(done.stdout.splitlines()[-1])
    return value, set(called)


def attempt(driver: Driver, each: Exercise) -> Result:
    """Runs one exercise: it must call what it names, in the shim, and leave no byte charged."""
    driver.called = set()
    failure = ""
    newer = driver.newer(each.symbols)
    try:
        if newer:
            assert not any(map(driver.has, newer)), f"{newer} are there, against their rows"
            return _result(driver, each, newer=newer)
        if each.with_context:
            driver.open_context()
        before = driver.used()
        each.run(driver)
        assert driver.used() == before, f"{driver.used() - before} bytes are left behind"
        for symbol in each.symbols:
            assert symbol in driver.called, f"{symbol} was not called"
            assert driver.is_hooked(driver.function(symbol)), f"{symbol} is not the shim's"
    except Exception:
        failure = traceback.format_exc()
    return _result(driver, each, failure)


def _result(
    driver: Driver, each: Exercise, failure: str = "", newer: tuple[str, ...] = ()
) -> Result:
    return {
        "named": each.symbols,
        "called": sorted(driver.called),
        "failure": failure,
        "newer": newer,
    }


def main(family: str, name: str = "", arguments: str = "") -> None:
    """What the process does that was started for a family."""
    module = importlib.import_module(f"exercises.{family}")
    driver = Driver()
    if name:
        value = getattr(module, name)(driver, *json.loads(arguments))
        print(json.dumps([value, sorted(driver.called)]))
        return
    print(
        json.dumps(
            {
                place[1]: attempt(driver, each)
                for place, each in EXERCISES.items()
                if place[0] == family
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
