"""`make test-gpu`, on a simulated H100 that it takes for a real one, and where it cannot run.

The loader finds the driver, every size is asked of it, and the GPU gives memory as a real one: so
the way to a real GPU stays open though no test run has one.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.sim import PROFILES, Machine, parse_spec
from libvgpu.sim.calibration import find_calibration
from support import CLIENT_PATH, ROOT, warm
from support.ended import run_to_end
from support.exercise.runner import exercises_of, families, measures
from support.lines import expect
from support.shim.slices import Slice

#: What one real GPU cannot do with the settings that it comes with.
SKIPPED = {
    "nvml_processes-compute_lists_of_a_gpu_that_is_not_ours": "this machine has no second GPU",
    "nvml_utilisation-nothing_of_a_gpu_that_is_not_ours": "this machine has no second GPU",
    "nvml_processes-no_accounting": (
        "accounting is off on this GPU, and to turn it on is to change a setting of it"
    ),
    "vmm-multicast": (
        "cuMulticastCreate gives 801 here without the shim, too: "
        "multicast joins the GPUs of one machine, two at least"
    ),
    "vmm-multicast_by_device": (
        "cuMulticastBindMem_v2, cuMulticastBindAddr_v2 came after this driver"
    ),
    "nvml_processes-no_accounting_v2": "nvmlDeviceGetAccountingStats_v2 came after this driver",
}

LOOK = """
from libvgpu.errors import VgpuError
from support.exercise.gpu_to_test import gpu_to_test
try:
    with gpu_to_test() as gpu:
        print("fit:", gpu.title)
except VgpuError as error:
    print("refused:", error.message)
"""
HOLD = """
from support.shim.cuda_client import open_context
open_context()
print("holding", flush=True)
input()
"""
EXCLUSIVE_PROCESS = 3
#: How a message begins to name it; the driver follows.
GPU = "simulated NVIDIA H100 80GB HBM3, driver "
RUN_SECONDS = 300  # some 10 on a quiet machine


@pytest.fixture
def as_real(tmp_path: Path) -> Machine:
    """A machine of one H100 as silicon showed it, costs of calls and all."""
    profile = replace(PROFILES["h100-80g"], calibration=find_calibration("h100"))
    return Machine.create([profile], tmp_path / "machine")


def make_test_gpu(
    environment: Mapping[str, str], results: Path, which: str
) -> subprocess.CompletedProcess[str]:
    """Runs the Makefile's own command in this environment, without building or installing."""
    outer = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")
    return subprocess.run(
        ["make", "--no-print-directory", "-o", "build", "-o", f"{sys.prefix}/.test",
         f"VENV={sys.prefix}", "test-gpu", f"GPU_TESTS={which}"],
        cwd=ROOT, text=True, capture_output=True, timeout=RUN_SECONDS, check=False,
        env={name: value for name, value in environment.items() if name not in outer}
        | {"PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": f"--junitxml={results}"},
    )  # fmt: skip


@pytest.mark.timeout(RUN_SECONDS + 10)
@pytest.mark.parametrize(
    ("which", "measuring"),
    [
        ("gpu and not timing", False),
        pytest.param("gpu and timing", True, marks=pytest.mark.timing),
    ],
    ids=["effects", "times"],
)
def test_every_exercise_passes_as_on_a_real_gpu_or_says_why_not(
    as_real: Machine, tmp_path: Path, which: str, measuring: bool
) -> None:
    results = tmp_path / "results.xml"

    done = make_test_gpu(as_real.environment(), results, which)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "GPU: simulated NVIDIA H100 80GB HBM3" in done.stdout
    assert "a context takes 518 MiB, memory comes by 2 MiB, pools grow by 32 MiB" in done.stdout
    ran, skipped = set(), {}
    for case in ElementTree.parse(results).iter("testcase"):  # noqa: S314 - written by pytest
        name = case.attrib["name"].partition("[")[2].rstrip("]")
        ran.add(name)
        reason = case.find("skipped")
        if reason is not None:
            skipped[name] = reason.attrib["message"]
    assert ran == {
        f"{family}-{name}"
        for family in families()
        for name in exercises_of(family)
        if measures(family) == measuring
    }
    assert skipped == {name: reason for name, reason in SKIPPED.items() if name in ran}


def test_without_a_driver_the_run_fails_with_a_sentence_before_any_test(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").touch()  # hides that of a machine which has one
    hidden = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}

    done = make_test_gpu(hidden, tmp_path / "results.xml", "gpu")

    assert done.returncode != 0
    assert "no test ran on a GPU: there is no libcuda.so.1" in done.stdout
    assert "passed" not in done.stdout and "skipped" not in done.stdout


@pytest.mark.parametrize("chosen", [[], ["-m", "not timing"]], ids=["plain", "other-marks"])
def test_no_other_run_of_tests_takes_a_gpu(chosen: list[str]) -> None:
    """Not even one that names the folder: on a machine with a GPU it would be used unasked."""
    done = warm.run(["-m", "pytest", *chosen, "tests/gpu"], os.environ)

    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, done.stdout
    assert "deselected" in done.stdout


def look(environment: Mapping[str, str]) -> str:
    done = run_to_end([sys.executable, "-c", LOOK], env={**environment, "PYTHONPATH": CLIENT_PATH})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_gpu_to_itself_is_fit_and_a_simulated_one_is_called_so(as_real: Machine) -> None:
    assert look(as_real.environment()).startswith(f"fit: {GPU}")


def test_a_driver_without_nvml_is_refused(as_real: Machine, tmp_path: Path) -> None:
    folder = tmp_path / "driver"
    folder.mkdir()
    (folder / "libcuda.so.1").symlink_to(SIM_LIBRARY_DIR / "libcuda.so.1")
    (folder / "libnvidia-ml.so.1").touch()

    said = look(as_real.environment() | {"LD_LIBRARY_PATH": str(folder)})

    assert said.startswith("refused: there is no libnvidia-ml.so.1: ")


def test_a_gpu_that_somebody_uses_is_refused(
    as_real: Machine, slice_of: Callable[..., Slice]
) -> None:
    other = slice_of(as_real, memory_bytes=1 << 30).start(HOLD, shim=False)
    expect(other, "holding")

    said = look(as_real.environment())

    assert said.startswith("refused: GPU 0 (NVIDIA H100 80GB HBM3) is in use by ")
    assert str(other.pid) in said


def test_a_gpu_that_two_processes_cannot_share_is_refused(as_real: Machine) -> None:
    as_real.set_compute_mode(0, EXCLUSIVE_PROCESS)

    said = look(as_real.environment())

    assert said.startswith(f"refused: GPU 0 ({GPU}")
    assert "is in compute mode exclusive process, " in said


def test_a_gpu_in_mig_mode_is_refused(tmp_path: Path) -> None:
    spec = parse_spec("h100-80g/mig=1g.10gb*2")
    machine = Machine.create(spec.profiles, tmp_path / "cut")

    said = look(machine.environment())

    assert said.startswith(f"refused: GPU 0 ({GPU}")
    assert "is in MIG mode" in said
