"""The shim on other releases of the driver, which lack some of what it hooks.

Every exercise of what a driver has runs on it: each hooked row up to its version is called by its
exact symbol. The gate has the oldest of them, which lacks most. It also has 535.54 and 590, with
the files that look at what is peculiar to them; test_exercises.py has the default driver. The rows
of all versions are held to NVIDIA's headers (contract/test_cuda_versions.py) and looked up there in
each way (test_lookup_versions.py). The long form has all exercises on all releases.
"""

import os
import re
import sys
from typing import Any

import pytest

from libvgpu.driver_releases import RELEASES
from libvgpu.sim.spec import DRIVER_VERSIONS
from support import ROOT
from support.ended import run_to_end
from support.exercise.runner import families, hooked, measures, named, run_family
from support.sim.driver import CUDA
from support.suite.on_build import OTHERS, TESTS_SECONDS

#: The files of the short form: 470 has those that measure nothing. 535.54 has long entries in the
#: lists of processes, 590 what the default driver lacks.
SHORT = {
    "470": tuple(family for family in families() if not measures(family)),
    "535.54": ("nvml_processes",),
    "590": ("nvml_processes", "vmm", "waits"),
}

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


@pytest.mark.parametrize("name", RELEASES)
def test_every_hooked_function_of_a_driver_is_exercised_there(name: str) -> None:
    assert named(RELEASES[name]) == hooked(RELEASES[name])


def runs() -> list[Any]:
    """Returns release and file of each run."""
    return [
        pytest.param(
            name,
            family,
            marks=[pytest.mark.virtual] * measures(family)
            + [pytest.mark.long] * (family not in SHORT.get(name, ())),
        )
        for name in RELEASES
        for family in families()
    ]


@pytest.mark.parametrize(("name", "family"), runs())
def test_the_hooked_functions_of_a_driver_do_what_their_rows_promise(
    name: str, family: str
) -> None:
    results = run_family(family, RELEASES[name])

    assert results
    failures = [f"{each}:\n{r['failure']}" for each, r in results.items() if r["failure"]]
    assert not failures, "\n".join(failures)


def test_the_short_form_has_every_hooked_function() -> None:
    """What the default driver lacks runs on the newest one."""
    newest, default = RELEASES["590"], RELEASES["580"]

    assert hooked(newest) - hooked(default) <= named(newest, SHORT["590"])


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
