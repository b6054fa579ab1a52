"""The process that runs the exercises of one file; `support.exercise.runner` starts it.

``python -m support.exercise.process FAMILY`` runs them in order of definition and prints a report
as JSON; one that fails does not keep the others from running, and one that names a symbol newer
than the driver, by its row in `hooks.def`, does not run. ``… FAMILY FUNCTION ARGUMENTS`` calls one
function for `Driver.elsewhere`.
"""

import importlib
import json
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.exercise.driver import EXERCISES, CannotRunError, Driver, Exercise
from support.waiting import PATIENCE_S

#: What one exercise came to: the symbols it named, those it called, why it failed or "", why the
#: GPU or its driver cannot run it or "", and those newer than the driver, for which it did not run.
Result = dict[str, Any]


def run_elsewhere(
    function: Callable[..., Any], arguments: tuple[Any, ...], fds: tuple[int, ...]
) -> tuple[Any, set[str]]:
    """Returns what the function gave in a second process, and the symbols that it called."""
    done = subprocess.run(
        [sys.executable, "-m", "support.exercise.process",
         Path(function.__code__.co_filename).stem, function.__name__, json.dumps(arguments)],
        pass_fds=fds, text=True, capture_output=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    value, called = json.loads(done.stdout.splitlines()[-1])
    return value, set(called)


def _check_left(more_bytes: int, more_other_bytes: int, device_bytes: int) -> None:
    """Asserts that no more is charged than before, and no less.

    *Other* may change by what the device itself kept, as it does the memory of streams.
    """
    asked_bytes = more_bytes - more_other_bytes
    assert asked_bytes == 0, f"{asked_bytes} bytes are left behind"
    said = f"{more_other_bytes} bytes of other are left, {device_bytes} on the device"
    assert min(0, device_bytes) <= more_other_bytes <= max(0, device_bytes), said


def attempt(driver: Driver, each: Exercise) -> Result:
    """Runs one exercise: it must call what it names, in the shim, and leave no byte charged."""
    driver.called = set()
    result: Result = {
        "named": each.symbols,
        "called": [],
        "failure": "",
        "skipped": "",
        "newer": (),
    }
    try:
        result["newer"] = newer = driver.newer(each.symbols)
        if newer:
            assert not any(map(driver.has, newer)), f"{newer} are there, against their rows"
            return result
        gone = [symbol for symbol in each.symbols if not driver.has(symbol)]
        driver.needs(not gone, f"this driver has no {', '.join(gone)} any more")
        if each.with_context:
            driver.open_context()
        before = driver.used(), driver.used("other"), driver.device_bytes()
        each.run(driver)
        after = driver.used(), driver.used("other"), driver.device_bytes()
        _check_left(*(now - then for now, then in zip(after, before, strict=True)))
        for symbol in each.symbols:
            assert symbol in driver.called, f"{symbol} was not called"
            assert driver.is_hooked(driver.function(symbol)), f"{symbol} is not the shim's"
    except CannotRunError as error:
        result["skipped"] = str(error)
    except Exception:
        result["failure"] = traceback.format_exc()
    return result | {"called": sorted(driver.called)}


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
