"""What a context costs: told by the host, measured by the first process, kept for the others."""

import shutil
from pathlib import Path

import pytest

from libvgpu.sim import Machine
from support import Compile
from support.lines import expect, next_line, tell
from support.shim.lacking import with_libraries, without_symbols
from support.shim.slices import Slice, SliceOf
from support.shim.walk import assert_exact, look_at, walk

MIB = 1 << 20
GIB = 1 << 30
CONTEXT_COUNT = 120
PROCESS_LISTS = [f"nvmlDeviceGetComputeRunningProcesses{version}" for version in ("_v2", "_v3")]

OPEN = """
from support.shim.cuda_client import *
open_context(); look("open")
second = check(create_context()); look("second")
check(driver.cuCtxDestroy(second)); look("first")
"""
OPEN_ONE = """
from support.shim.cuda_client import *
open_context(); look("open")
"""
TRY = """
from support.shim.cuda_client import *
check(driver.cuInit(0))
print(int(driver.cuDevicePrimaryCtxRetain(0)[0]))
"""
TRY_AND_STAY = """
import sys
from support.shim.cuda_client import *
check(driver.cuInit(0))
print("ready", flush=True); sys.stdin.readline()
print(int(driver.cuDevicePrimaryCtxRetain(0)[0]), flush=True); sys.stdin.readline()
"""


def cost_of(machine: Machine) -> int:
    return machine.devices[0].profile.context_bytes


@pytest.fixture
def part(costly_machine: Machine, slice_of: SliceOf) -> Slice:
    return slice_of(costly_machine, memory_bytes=4 * GIB)


@pytest.mark.parametrize("told_percent", [0, 60, 300])
def test_near_what_the_host_estimates_the_context_is_charged_what_it_costs(
    costly_machine: Machine, told_percent: int, part: Slice
) -> None:
    part.change(context_bytes=cost_of(costly_machine) * told_percent // 100)

    looks, _ = walk(part, OPEN)

    assert_exact(looks)
    assert looks["open"].charged_bytes == cost_of(costly_machine)
    assert looks["second"].charged_bytes == 2 * cost_of(costly_machine)


def test_more_than_twice_what_the_host_estimates_is_no_measurement(
    costly_machine: Machine, part: Slice
) -> None:
    """What is this process's all the same is *other* at the next quiet moment."""
    told_bytes = cost_of(costly_machine) * 2 // 5
    part.change(context_bytes=told_bytes)

    code = """
from support.shim.cuda_client import *
from support.shim.both_books import kind_bytes
open_context(); print(kind_bytes("context"))
check(driver.cuCtxSynchronize()); print(kind_bytes("context"), kind_bytes("other"))
look("quiet")
"""
    looks, words = walk(part, code)

    assert words == [*[str(told_bytes)] * 2, str(cost_of(costly_machine) - told_bytes)]
    assert_exact(looks)


@pytest.mark.parametrize("told_percent", [0, 60])
def test_a_context_that_turns_out_not_to_fit_is_ended_again(
    costly_machine: Machine, slice_of: SliceOf, told_percent: int
) -> None:
    part = slice_of(costly_machine, memory_bytes=cost_of(costly_machine) - 1)
    part.change(context_bytes=cost_of(costly_machine) * told_percent // 100)
    code = f"{TRY}look('refused'); print(check(driver.cuDevicePrimaryCtxGetState(0))[1])"

    looks, words = walk(part, code)

    assert words == ["2", "0"]
    assert (looks["refused"].charged_bytes, looks["refused"].taken_bytes) == (0, 0)


def test_what_the_first_process_measured_the_others_reserve_before(
    costly_machine: Machine, slice_of: SliceOf
) -> None:
    part = slice_of(costly_machine, memory_bytes=2 * cost_of(costly_machine) - 1)
    part.change(context_bytes=0)
    first = part.start(TRY_AND_STAY)
    next_line(first)
    tell(first, "go")
    expect(first, "0")

    assert part.run(TRY) == ["2"]

    # The driver was not even asked: the second process never came to the GPU.
    assert [client.pid for client in costly_machine.books()[0].clients] == [first.pid]
    assert look_at(part).charged_bytes == cost_of(costly_machine)


def test_a_context_that_fits_exactly_is_made(costly_machine: Machine, slice_of: SliceOf) -> None:
    part = slice_of(costly_machine, memory_bytes=cost_of(costly_machine))
    assert part.run(TRY) == ["0"]
    part.change(context_bytes=2 * cost_of(costly_machine))  # measured by now, and known better
    assert part.run(TRY) == ["0"]


@pytest.mark.parametrize("told", [True, False])
def test_processes_that_race_for_their_first_context_leave_exact_books(
    costly_machine: Machine, slice_of: SliceOf, told: bool
) -> None:
    fitting, process_count = 5, 8
    part = slice_of(costly_machine, memory_bytes=(fitting + 1) * cost_of(costly_machine) - 1)
    if not told:
        part.change(context_bytes=0)
    processes = [part.start(TRY_AND_STAY) for _ in range(process_count)]
    for process in processes:
        assert process.stdout is not None
        next_line(process)
    for process in processes:
        tell(process, "go")

    codes = [int(next_line(process)) for process in processes]

    assert codes.count(0) == fitting and codes.count(2) == process_count - fitting
    seen = look_at(part)
    assert seen.charged_bytes == seen.taken_bytes == fitting * cost_of(costly_machine)


def test_where_nvml_does_not_know_the_process_the_estimate_stands(
    tmp_path: Path, part: Slice
) -> None:
    part.change(context_bytes=700 * MIB)
    blind = without_symbols(part, tmp_path / "lib", "libnvidia-ml.so.1", *PROCESS_LISTS)

    looks, _ = walk(blind, OPEN)

    assert [look.charged_bytes for look in looks.values()] == [b * MIB for b in (700, 1400, 700)]


def test_where_nvml_does_not_know_the_process_the_growth_of_the_gpu_is_charged(
    costly_machine: Machine, tmp_path: Path, part: Slice
) -> None:
    part.change(context_bytes=0)
    blind = without_symbols(part, tmp_path / "lib", "libnvidia-ml.so.1", *PROCESS_LISTS)

    looks, _ = walk(blind, OPEN)

    assert_exact(looks)
    assert looks["open"].charged_bytes == cost_of(costly_machine)


@pytest.fixture
def stranger(tmp_path: Path, compile_program: Compile) -> Path:
    """A directory with an NVML that lists others under our pid, by a script."""
    library = compile_program("nvml_stranger.c", flags=("-shared", "-fPIC"))
    directory = tmp_path / "lib"
    directory.mkdir()
    shutil.copy(library, directory / "libnvidia-ml.so.1")
    return directory


def test_a_stranger_with_our_pid_is_not_taken_for_us(
    costly_machine: Machine, slice_of: SliceOf, stranger: Path
) -> None:
    part = with_libraries(slice_of(costly_machine, memory_bytes=4 * GIB), stranger)

    looks, _ = walk(part, OPEN)

    assert_exact(looks)
    assert looks["open"].charged_bytes == cost_of(costly_machine)


@pytest.mark.parametrize(
    ("listed", "used", "charged_mib"),
    [
        pytest.param("424;8168", "1000;1518", 518, id="who was there before grows"),
        pytest.param("424;8168,518", "1000;9262", 518, id="grows while we appear"),
        pytest.param(";8168,518", "1000;9262", 518, id="appears with us"),
        pytest.param(";518", "1000;9262", 518, id="only we appear"),
        pytest.param("424,600;424,600", "1000;1518", 518, id="two were there, we are unseen"),
    ],
)
def test_what_a_stranger_with_our_pid_takes_meanwhile_is_not_our_context(
    stranger: Path,
    monkeypatch: pytest.MonkeyPatch,
    listed: str,
    used: str,
    charged_mib: int,
    part: Slice,
) -> None:
    """The first process of every container is number 1 in its own PID namespace."""
    part.change(context_bytes=0)
    monkeypatch.setenv("NVML_LISTED", listed)
    monkeypatch.setenv("NVML_USED", used)

    looks, _ = walk(with_libraries(part, stranger), OPEN_ONE)

    assert looks["open"].charged_bytes == charged_mib * MIB


def test_a_neighbours_allocation_refuses_nobody_a_context(
    stranger: Path, monkeypatch: pytest.MonkeyPatch, part: Slice
) -> None:
    """Where only the whole GPU's growth is known, one that does not fit is measured once more."""
    part.change(context_bytes=0)
    monkeypatch.setenv("NVML_LISTED", ";")
    monkeypatch.setenv("NVML_USED", "1000;9000;8500;9018")

    looks, _ = walk(with_libraries(part, stranger), OPEN_ONE)

    assert looks["open"].charged_bytes == 518 * MIB


def test_what_was_measured_roughly_refuses_no_later_process(
    stranger: Path, monkeypatch: pytest.MonkeyPatch, part: Slice
) -> None:
    part.change(context_bytes=0)
    monkeypatch.setenv("NVML_LISTED", ";")
    monkeypatch.setenv("NVML_USED", "0;8000;8000;16000;16000;24000")
    refused = with_libraries(part, stranger).run(TRY)
    monkeypatch.setenv("NVML_USED", "24000;24518")

    looks, _ = walk(with_libraries(part, stranger), OPEN_ONE)

    assert refused == ["2"]
    assert looks["open"].charged_bytes == 518 * MIB


def test_threads_that_allocate_meanwhile_never_make_a_context_cheaper(
    costly_machine: Machine, slice_of: SliceOf, compile_program: Compile
) -> None:
    part = slice_of(costly_machine, memory_bytes=70 * GIB)
    library = compile_program("shim_context_threads.c", flags=("-shared", "-fPIC"))
    code = f"""
import ctypes, sys
from support.shim.cuda_client import *
primary = open_context()
threads = ctypes.CDLL(sys.argv[1])  # which needs the driver loaded
threads.start_churn(ctypes.c_void_p(int(primary)), 2)
for _ in range({CONTEXT_COUNT}):
    check(create_context()); check(driver.cuCtxPopCurrent())
threads.stop_churn()
look("quiet")
"""

    looks, _ = walk(part, code, str(library))

    quiet = looks["quiet"]
    assert quiet.taken_bytes == (1 + CONTEXT_COUNT) * cost_of(costly_machine)
    assert quiet.charged_bytes >= quiet.taken_bytes
