"""The shim on drivers of older CUDA versions, which lack some of what it hooks.

Every exercise of what a driver has runs on it: each hooked row up to its version is called by its
exact symbol. The gate has the oldest of them, which lacks most; the rows of newer ones are held to
NVIDIA's headers (contract/test_cuda_versions.py) and looked up there in each way
(test_lookup_versions.py).
The long form has all of them, and runs the other tests of the shim there.
"""

import os
import re
import sys

import pytest

from libvgpu.hook_table import read_hook_table
from libvgpu.sim.spec import DRIVER_VERSIONS
from support import ROOT
from support.ended import run_to_end
from support.exercise.runner import named, run_all
from support.sim.driver import CUDA
from support.suite.on_build import OTHERS, TESTS_SECONDS

SHORT = ("11.8",)
#: What takes time by the clock is tried on the newest driver in the short form.
TIMES = [pytest.mark.timing, pytest.mark.long]
#: 11.4 and 12.2 are there for releases of the driver. An exercise runs where everything that it
#: names is, and some name what came after 12.2. Before 11.6 nobody can ask for an array's size.
LONG = ("11.8", "12.4", "12.8")
#: How many of the other tests pass at least.
LEAST_TESTS = {"11.8": 100, "12.4": 240, "12.8": 240}

#: What runs by itself for long or measures the machine rather than the driver is left out.
LEFT_OUT = ("unoptimised", "versions", "mps_limits", "uncapped")
#: What the other tests start are programs of C and of ctypes; the bindings of CUDA 13, with which
#: all else is written, ask for everything by cuGetProcAddress_v2, which came with 12.0.
FIRST_OF_BINDINGS = DRIVER_VERSIONS["12.4"]
WITHOUT_BINDINGS = (
    "tests/native/slice/test_process_life.py",
    "tests/native/slice/test_process_life_many.py",
    "tests/native/memory/test_vmm.py",
    "tests/integration/libvgpu/slice/test_bad_files.py",
    "tests/integration/libvgpu/hooks/test_cancelled_thread.py",
    "tests/integration/libvgpu/hooks/test_init_race.py",
    "tests/integration/libvgpu/hooks/test_lookup.py",
)


@pytest.mark.parametrize("cuda", LONG)
def test_every_hooked_function_of_an_older_driver_is_exercised_there(cuda: str) -> None:
    version = DRIVER_VERSIONS[cuda]
    hooked = {row.symbol for row in read_hook_table() if row.is_hooked and row.since <= version}

    assert named(version) == hooked


@pytest.mark.parametrize(
    "measuring", [False, pytest.param(True, marks=TIMES)], ids=["effects", "times"]
)
@pytest.mark.parametrize(
    "cuda", [pytest.param(cuda, marks=[pytest.mark.long] * (cuda not in SHORT)) for cuda in LONG]
)
def test_the_hooked_functions_of_an_older_driver_do_what_their_rows_promise(
    cuda: str, measuring: bool
) -> None:
    results = run_all(DRIVER_VERSIONS[cuda], measuring=measuring)

    failures = [f"{name}:\n{each['failure']}" for name, each in results.items() if each["failure"]]
    assert not failures, "\n".join(failures)
    ran = [name for name, each in results.items() if not each["newer"]]
    print(f"{len(ran)} of {len(results)} exercises ran on CUDA {cuda}")
    assert len(ran) > len(results) / 2


def shim_tests(version: int) -> list[str]:
    if version < FIRST_OF_BINDINGS:
        return [*WITHOUT_BINDINGS]
    found = (
        *sorted(ROOT.glob("tests/integration/libvgpu/*/test_*.py")),
        *sorted(ROOT.glob("tests/native/slice/test_process_life*.py")),
    )
    return [
        *(
            str(p.relative_to(ROOT))
            for p in found
            if p.parent.name != "sim" and not any(word in p.stem for word in LEFT_OUT)
        ),
        "tests/native/memory/test_vmm.py",
    ]


@pytest.mark.long
@pytest.mark.timeout(2 * TESTS_SECONDS)
@pytest.mark.parametrize("cuda", LONG)
def test_the_shim_tests_pass_on_an_older_driver(cuda: str) -> None:
    done = run_to_end(
        [sys.executable, "-m", "pytest", "-q", "-m", OTHERS, *shim_tests(DRIVER_VERSIONS[cuda])],
        cwd=ROOT,
        timeout=TESTS_SECONDS,
        env=os.environ | {CUDA: cuda, "VGPU_LONG": "0"},
    )

    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    print(f"{passed[0]} on CUDA {cuda}")
    assert int(passed[1]) >= LEAST_TESTS[cuda]
