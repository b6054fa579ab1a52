"""The figure `silicon` needs a Python and a C compiler, and no package, on a simulated H100 too.

Simulated driver and NVML are found as real ones are, by the loader. The Python has none of what
``make setup`` installs.
"""

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from benchmarks.figure import Measurement, judge
from benchmarks.silicon import experiments
from benchmarks.silicon.calls import CALL_ROWS
from benchmarks.silicon.frameworks import RUNTIMES
from benchmarks.silicon.memory import ROWS as MEMORY
from benchmarks.silicon.played_rows import QUICK_PLAYED
from benchmarks.silicon.rows import QUICK_ROWS
from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.sim import PROFILES, Machine
from libvgpu.sim.calibration import find_calibration
from support import ROOT
from support.ended import run_to_end
from support.waiting import PATIENCE_S

PACKAGES = ("cffi", "_cffi_backend", "click", "pynvml", "yaml", "msgspec", "rich", "psutil")
#: On a machine that others keep busy; alone it takes 15 s.
RUN_SECONDS = 240
#: The oldest Python that the mirror is for; the rest of the project wants 3.11.
OLDEST = "3.10"

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@dataclass(frozen=True, slots=True)
class Bare:
    """A Python without packages, and an environment in which it alone is found."""

    python: Path
    environment: Mapping[str, str]

    def run(self, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        return run_to_end(
            [self.python, *arguments],
            cwd=ROOT,
            env={**self.environment, **variables},
            timeout=RUN_SECONDS,
        )

    def measure(self, *options: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        return self.run("-m", "benchmarks", "run", "silicon", *options, **variables)


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    venv.create(tmp_path / "bare", with_pip=False)
    path = os.pathsep.join((str(tmp_path / "bare/bin"), os.defpath))
    made = Bare(tmp_path / "bare/bin/python3", {"PATH": path, "HOME": str(tmp_path)})
    look = f"import importlib.util as u; print(*filter(u.find_spec, {PACKAGES!r}))"
    assert made.run("-c", look).stdout == "\n"
    return made


@pytest.fixture
def on_gpu(bare: Bare, tmp_path: Path) -> Bare:
    profile = replace(PROFILES["h100-80g"], calibration=find_calibration("h100"))
    machine = Machine.create([profile], tmp_path / "machine")
    return Bare(bare.python, machine.environment(bare.environment))


@pytest.mark.timeout(RUN_SECONDS + PATIENCE_S)
def test_it_is_taken_and_written_without_any_package(bare: Bare, tmp_path: Path) -> None:
    written, table = tmp_path / "out.json", tmp_path / "out.md"

    done = bare.measure(
        *("--simulate", "h100", "--quick", "--count", "1", "--seconds", "0.5"),
        *("--json", str(written), "--markdown", str(table)),
    )

    assert done.returncode == 0, done.stderr
    (figure,) = json.loads(written.read_text())["figures"]
    rows = figure["measurements"]
    found = [Measurement(**row) for row in rows]
    assert judge(found) == []
    (subject,) = {each.subject.partition(",")[0] for each in found}
    assert subject == "simulated NVIDIA H100 80GB HBM3"
    cases = {each.case for each in found}
    assert {each.name for each in MEMORY} | {each.name for each in CALL_ROWS} <= cases
    assert {experiments.QUICK[0].title, QUICK_PLAYED[0].name, QUICK_ROWS[0].name} <= cases
    missing = {each.case: each for each in found if each.value is None}
    assert missing.keys() == {each.name for each in RUNTIMES}
    for each in RUNTIMES:
        assert missing[each.name].note.endswith(f"there is no libcudart.so.{each.arguments[0]}")
    lines = table.read_text().splitlines()
    assert len(lines) == len(rows) + 2
    assert all(row["case"] in line for row, line in zip(rows, lines[2:], strict=True))
    assert "share of bare" in done.stdout


def test_the_command_of_the_makefile_downloads_nothing(tmp_path: Path) -> None:
    """Without an environment of ours it starts the machine's Python, and nothing else."""
    python, told = tmp_path / "python3", tmp_path / "told"
    python.write_text(f'#!/bin/sh\necho "$@" >> {told}\n')
    python.chmod(0o755)

    subprocess.run(
        ["make", "-s", "bench-gpu", f"PYTHON={python}", f"VENV={tmp_path / 'none'}"],
        cwd=ROOT,
        check=True,
        timeout=PATIENCE_S,
    )

    (line,) = told.read_text().splitlines()
    assert line.startswith("-m benchmarks run silicon --json ")


@pytest.mark.parametrize(
    ("library", "said"),
    [("libcuda.so.1", "there is no libnvidia-ml.so.1: "), ("", "there is no libcuda.so.1: ")],
)
def test_a_library_that_is_missing_is_said_before_anything_runs(
    library: str, said: str, bare: Bare, tmp_path: Path
) -> None:
    folder = tmp_path / "driver"
    folder.mkdir()
    if library:
        (folder / library).symlink_to(SIM_LIBRARY_DIR / library)

    done = bare.measure(LD_LIBRARY_PATH=str(folder))

    assert done.returncode == 1
    (_, why, hint) = done.stderr.splitlines()
    assert why.startswith(f"benchmarks: {said}")
    assert hint == "hint: --simulate h100 needs no GPU"


def test_a_machine_without_a_gpu_is_said(on_gpu: Bare, tmp_path: Path) -> None:
    done = on_gpu.measure(VGPU_SIM_VISIBLE="")

    assert done.returncode == 1
    assert "benchmarks: this machine has no GPU" in done.stderr


def test_a_gpu_that_others_use_is_said(on_gpu: Bare) -> None:
    hold = (
        "import ctypes, subprocess, sys\n"
        "driver, context = ctypes.CDLL('libcuda.so.1'), ctypes.c_void_p()\n"
        "assert driver.cuInit(0) == 0\n"
        "assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0\n"
        "sys.exit(subprocess.call([sys.executable, '-m', 'benchmarks', 'run', 'silicon']))\n"
    )

    done = on_gpu.run("-c", hold)

    assert done.returncode == 1
    assert "GPU 0 (NVIDIA H100 80GB HBM3) is in use by 1 process, the first is " in done.stderr


def test_a_machine_without_a_compiler_is_said(on_gpu: Bare) -> None:
    done = on_gpu.measure(PATH=str(on_gpu.python.parent))

    assert done.returncode == 1
    assert done.stderr.splitlines()[-2:] == [
        "benchmarks: no C compiler (cc or gcc) on PATH",
        "hint: apt install gcc libc6-dev",
    ]


def test_what_needs_a_package_names_it(bare: Bare) -> None:
    done = bare.measure("--simulate", "l4")

    assert done.returncode == 1
    assert f"benchmarks: this needs the module msgspec, which {bare.python} does" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_list_tells_what_can_be_taken_and_what_lacks_a_package(bare: Bare) -> None:
    done = bare.run("-m", "benchmarks", "list")

    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert lines["silicon"].startswith("what an H100 showed, measured again")
    assert lines["share"].startswith("this needs the module ")


def test_an_older_python_says_so_at_once(bare: Bare) -> None:
    """Told by what runs before any newer syntax is read."""
    old = "import sys; sys.version_info = (3, 9, 2); import benchmarks"

    done = bare.run("-c", old)

    assert done.returncode == 1
    assert done.stderr == "benchmarks: Python 3.9 is too old, must be 3.10 or newer\n"


def test_what_it_loads_is_of_the_oldest_python(bare: Bare) -> None:
    """Syntax and the standard library, as mypy knows both of every version."""
    pytest.importorskip("mypy", reason="no mypy: make lint installs it")
    listing = (
        "import sys, benchmarks.__main__, benchmarks.silicon.figure\n"
        "ours = [m for m in sys.modules.values() if m.__name__.partition('.')[0] in\n"
        "        ('benchmarks', 'libvgpu')]\n"
        "print(*[m.__file__ for m in ours], sep='\\n')\n"
    )
    files = bare.run("-c", listing).stdout.split()
    assert str(ROOT / "benchmarks/silicon/bench.py") in files

    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--python-version", OLDEST, "--follow-imports", "silent",
         "--cache-dir", str(ROOT / "build/mypy"), *files],
        cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip

    assert checked.returncode == 0, checked.stdout + checked.stderr
