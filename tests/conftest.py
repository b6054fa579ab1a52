"""What several test folders share: compiling small C programs, and simulated machines."""

import gc
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from libvgpu.sim import PROFILES, Machine
from libvgpu.sim.profiles import CALIBRATION
from libvgpu.sim.spec import format_driver_version
from support import ROOT, Compile
from support.shim import native_programs
from support.shim.slices import Slice, SliceOf, make_slice
from support.sim.driver import driver_version

pytest_plugins = [
    "support.suite.built",
    "support.suite.chance",
    "support.suite.leftovers",
    "support.suite.no_process",
    "support.suite.own_folder",
    "support.suite.own_state",
    "support.suite.shuffled",
    "support.suite.watchdog",
    "support.suite.workers",  # which uses the one before, and is used by the one after it
    "support.suite.quiet",
    "support.shim.talker",
    "support.suite.virtual_tests",
]

# The folders whose files take longest come first, since a worker takes a whole file and one that
# begins a long file last keeps all waiting. What measures time runs after all others.
FOLDERS = ("model", "e2e", "integration", "hostile", "native", "fuzz", "contract", "unit", "gpu")


def pytest_configure() -> None:
    """Makes this interpreter the ``python3`` of the programs that tests start.

    What must hold on any GPU, to the byte, is tested on one without friction; tests of the
    calibrated ones ask for them (support/sim/measured.py).
    """
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    # A run in the background of a shell ignores this one, and so would all that tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault(CALIBRATION, "ideal")


def pytest_report_header(config: pytest.Config) -> str | None:
    """Says on which driver the results are; tests of a real one say it themselves (gpu/)."""
    if config.option.markexpr.startswith("gpu"):
        return None
    return f"simulated driver: CUDA {format_driver_version(driver_version())}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Orders the tests by folder, those marked ``timing`` at the end."""

    def place(item: pytest.Item) -> tuple[bool, int]:
        folder = item.path.relative_to(ROOT / "tests").parts[0]
        return item.get_closest_marker("timing") is not None, FOLDERS.index(folder)

    items.sort(key=place)  # stable: the order within a file stays


def pytest_collection_finish() -> None:
    """Keeps the collector from walking over three thousand tests again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def compile_program(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Returns ``compile_program(source, *more, flags=())``: builds a test program, gives its path.

    ``source`` is below ``tests/native``, ``more`` are further sources relative to the checkout.
    """
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("native")  # which other users may be let into

    def build(source: str, *more: str, flags: tuple[str, ...] = ()) -> Path:
        built = native_programs.build(compiler, source, *more, flags=flags)
        target = folder / built.name
        if not target.exists():
            try:
                target.hardlink_to(built)
            except OSError:  # on another file system
                shutil.copy(built, target)
        return target

    return build


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """One simulated H100 whose contexts cost nothing, so that limits divide evenly."""
    profile = replace(PROFILES["h100-80g"], context_bytes=0)
    return Machine.create([profile], tmp_path / "machine", driver_version())


@pytest.fixture
def costly_machine(tmp_path: Path) -> Machine:
    """One simulated H100 whose contexts cost what the profile says."""
    return Machine.create([PROFILES["h100-80g"]], tmp_path / "costly-machine", driver_version())


@pytest.fixture
def two_gpus(tmp_path: Path) -> Machine:
    """Two simulated H100 whose contexts cost nothing."""
    profile = replace(PROFILES["h100-80g"], context_bytes=0)
    return Machine.create([profile, profile], tmp_path / "two-gpus", driver_version())


@pytest.fixture
def slice_of(tmp_path: Path) -> Iterator[SliceOf]:
    """Returns ``slice_of(machine, memory_bytes=…, core_percent=…)``; ends its programs."""
    made: list[Slice] = []

    def make(machine: Machine, **limits: int) -> Slice:
        made.append(make_slice(machine, tmp_path / f"slice-{len(made)}", **limits))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def part(machine: Machine, slice_of: SliceOf) -> Slice:
    """A slice with 1 GiB of `machine`."""
    return slice_of(machine, memory_bytes=1 << 30)
