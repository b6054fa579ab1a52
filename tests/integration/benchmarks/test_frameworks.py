"""Memory that the ledger does not know is found step by step; here of a made-up framework."""

import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.figure import Measurement, judge
from benchmarks.silicon import frameworks
from benchmarks.silicon.frameworks import FRAMEWORKS, Framework, Seen
from libvgpu.sim import PROFILES
from support.sim.gpu import SimulatedGpu, simulated_gpu

PROFILE = PROFILES["h100-80g"]
MODULE = "framework_of_a_test"
#: It finds the driver's own function by its place in the file, where no shim sees the call.
CODE = """
import ctypes, os, subprocess
driver = ctypes.CDLL("libcuda.so.1")
MIB = 1 << 20
def check(code):
    if code: raise RuntimeError(f"CUDA error {code}")
def allocate(mib, call=driver.cuMemAlloc_v2):
    check(call(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(mib * MIB)))
def unseen(mib):
    maps = [line.split() for line in open("/proc/self/maps")]
    base, path = next((row[0], row[-1]) for row in maps if "libcuda.so" in row[-1])
    names = subprocess.check_output(["nm", "-D", "--defined-only", path], text=True)
    at = next(row.split()[0] for row in names.splitlines() if row.endswith(" cuMemAlloc_v2"))
    address = int(base.split("-")[0], 16) + int(at, 16)
    allocate(mib, ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)(address))
def context():
    print("what a framework says to its users", flush=True)
    made = ctypes.c_void_p()
    check(driver.cuInit(0)); check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(made), 0))
    check(driver.cuCtxSetCurrent(made))
"""
#: No call of the driver follows what the shim has not seen: in one it may find that by itself.
STEPS = """
import os
from framework_of_a_test import allocate, context, unseen
STEPS = [
    ("context", context),
    ("64 MiB", lambda: allocate(64)),
    ("too much", lambda: allocate(1 << 20)),
    ("32 MiB unseen", lambda: unseen(32)),
    ("no call", lambda: None),
]
SLOW_STEPS = [("last words", lambda: os._exit(7))]
"""

NOTHING_SEEN: Mapping[str, Seen] = {}

pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None or shutil.which("nm") is None, reason="no C compiler, or no nm"
)


@pytest.fixture
def gpu() -> Iterator[SimulatedGpu]:
    with simulated_gpu(PROFILE) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / f"{MODULE}.py").write_text(CODE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def framework(
    folder: Path,
    steps: str,
    unaccounted: Mapping[str, Seen] = NOTHING_SEEN,
    grown: Mapping[str, Seen] = NOTHING_SEEN,
) -> Framework:
    (folder / "steps.py").write_text(steps)
    return Framework("Made up", MODULE, folder / "steps.py", (), unaccounted, grown)


def measure(gpu: SimulatedGpu, each: Framework, *, quick: bool = True) -> list[Measurement]:
    return frameworks.measure(gpu, [each], quick=quick)


def test_each_step_tells_what_the_ledger_does_not_know(gpu: SimulatedGpu, folder: Path) -> None:
    seen, grown = {"32 MiB unseen": Seen(30, 2), "no call": Seen(0, 1)}, {"no call": Seen(1, 0.5)}

    found = measure(gpu, framework(folder, STEPS, unaccounted=seen, grown=grown))

    assert [(each.case, each.quantity, each.value) for each in found] == [
        ("Made up: context", "unaccounted", 0.0),
        ("Made up: 64 MiB", "unaccounted", 0.0),
        ("Made up: too much", "unaccounted", None),
        ("Made up: 32 MiB unseen", "unaccounted", 32.0),
        ("Made up: no call", "unaccounted", 32.0),
        ("Made up: no call", "unaccounted, grown", 0.0),
    ]
    assert found[2].note == "RuntimeError: CUDA error 2"
    assert {each.unit for each in found} == {"MiB"}
    whole, grown_by = judge(found)
    assert whole.endswith("unaccounted is 32 MiB, simulated 0 ± 1 was expected")
    assert grown_by.endswith("unaccounted, grown is 0 MiB, simulated 1 ± 0.5 was expected")


def test_a_program_that_dies_says_where(gpu: SimulatedGpu, folder: Path) -> None:
    last = measure(gpu, framework(folder, STEPS), quick=False)[-1]

    assert last.case == "Made up: what follows no call"
    assert (last.value, last.needs_tool) == (None, False)
    assert last.note.startswith("it ended with status 7: ")


def test_a_framework_that_cannot_be_loaded_is_no_failure(gpu: SimulatedGpu, folder: Path) -> None:
    (only,) = measure(gpu, framework(folder, "raise OSError('libnvrtc.so: cannot open')"))

    assert (only.case, only.needs_tool) == ("Made up", True)
    assert only.note == "it cannot be used: OSError: libnvrtc.so: cannot open"


def test_where_the_gpu_does_not_tell_of_processes_its_total_does(
    gpu: SimulatedGpu, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "process_bytes", lambda pid: None)

    found = measure(gpu, framework(folder, STEPS))

    assert [each.value for each in found] == [0.0, 0.0, None, 32.0, 32.0]
    assert found[0].note == "by what the whole GPU has given since before it"


def test_what_is_not_installed_is_said(gpu: SimulatedGpu) -> None:
    (only,) = measure(gpu, Framework("Nothing", "no_such_framework", Path("no.py")))

    assert (only.case, only.value, only.needs_tool) == ("Nothing", None, True)
    assert only.note == "no python3 here has no_such_framework"


def test_a_quick_run_takes_the_first_that_is_installed(gpu: SimulatedGpu, folder: Path) -> None:
    empty = Framework("Nothing", "no_such_framework", Path("no.py"))
    steps = f"from {MODULE} import context\nSTEPS = [('it', context)]"
    second = replace(framework(folder, steps), name="Second")

    def cases(each: list[Framework], *, quick: bool) -> list[str]:
        found = frameworks.measure(gpu, each, quick=quick)
        return [measurement.case for measurement in found]

    assert cases([empty, second, second], quick=True) == ["Nothing", "Second: it"]
    assert cases([empty, second, second], quick=False) == ["Nothing", "Second: it", "Second: it"]


def test_the_machines_own_python_is_asked_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A framework is where the machine's users have it, and that need not be where we run."""
    (folder / "bin").mkdir()
    own = folder / "bin/python3"
    own.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n')
    own.chmod(0o755)
    monkeypatch.delenv("PYTHONPATH")
    monkeypatch.setenv("PATH", f"{own.parent}:/usr/bin:/bin")

    assert frameworks.find_python(MODULE) == str(own)
    assert frameworks.find_python("json") == sys.executable


@pytest.mark.parametrize("each", FRAMEWORKS, ids=lambda each: each.name)
def test_what_silicon_showed_is_of_steps_that_there_are(each: Framework) -> None:
    text = each.steps.read_text()
    named = [*each.unaccounted, *each.grown]

    assert named
    assert [step for step in named if f'("{step}", ' not in text] == []
