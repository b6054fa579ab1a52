"""What a context costs: told by the host, measured by the first process, kept for the others."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from libvgpu.sim import Machine
from support import Compile
from support.lacking import with_libraries, without_symbols
from support.slices import Slice
from support.walk import assert_exact, look_at, walk

SliceOf = Callable[..., Slice]
MIB = 1 << 20
GIB = 1 << 30
CONTEXT_COUNT = 120
PROCESS_LIST = "nvmlDeviceGetComputeRunningProcesses_v3"

OPEN = """
from support.cuda_client import *
open_context(); look("open")
second = check(create_context()); look("second")
check(driver.cuCtxDestroy(second)); look("first")
"""
TRY = """
from support.cuda_client import *
check(driver.cuInit(0))
print(int(driver.cuDevicePrimaryCtxRetain(0)[0]))
"""
TRY_AND_STAY = """
import sys
from support.cuda_client import *
check(driver.cuInit(0))
print("ready", flush=True); sys.stdin.readline()
print(int(driver.cuDevicePrimaryCtxRetain(0)[0]), flush=True); sys.stdin.readline()
"""


def cost_of(machine: Machine) -> int:
    return machine.devices[0].profile.context_bytes


@pytest.mark.parametrize("told_mib", [0, 1, 1000])
def test_whatever_the_host_estimates_the_context_is_charged_what_it_costs(
    costly_machine: Machine, slice_of: SliceOf, told_mib: int
) -> None:
    part = slice_of(costly_machine, memory_bytes=4 * GIB)
    part.change(context_bytes=told_mib * MIB)

    looks, _ = walk(part, OPEN)

    assert_exact(looks)
    assert looks["open"].charged_bytes == cost_of(costly_machine)
    assert looks["second"].charged_bytes == 2 * cost_of(costly_machine)


@pytest.mark.parametrize("told_bytes", [0, MIB])
def test_a_context_that_turns_out_not_to_fit_is_ended_again(
    costly_machine: Machine, slice_of: SliceOf, told_bytes: int
) -> None:
    part = slice_of(costly_machine, memory_bytes=cost_of(costly_machine) - 1)
    part.change(context_bytes=told_bytes)
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
    assert first.stdin is not None and first.stdout is not None
    first.stdout.readline()
    first.stdin.write("go\n")
    first.stdin.flush()
    assert first.stdout.readline() == "0\n"

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
        process.stdout.readline()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()

    codes = [int(process.stdout.readline()) for process in processes if process.stdout]

    assert codes.count(0) == fitting and codes.count(2) == process_count - fitting
    seen = look_at(part)
    assert seen.charged_bytes == seen.taken_bytes == fitting * cost_of(costly_machine)


def test_where_nvml_does_not_know_the_process_the_estimate_stands(
    costly_machine: Machine, slice_of: SliceOf, tmp_path: Path
) -> None:
    part = slice_of(costly_machine, memory_bytes=4 * GIB)
    part.change(context_bytes=700 * MIB)
    blind = without_symbols(part, tmp_path / "lib", "libnvidia-ml.so.1", PROCESS_LIST)

    looks, _ = walk(blind, OPEN)

    assert [look.charged_bytes for look in looks.values()] == [b * MIB for b in (700, 1400, 700)]


def test_where_nvml_does_not_know_the_process_the_growth_of_the_gpu_is_charged(
    costly_machine: Machine, slice_of: SliceOf, tmp_path: Path
) -> None:
    part = slice_of(costly_machine, memory_bytes=4 * GIB)
    part.change(context_bytes=0)
    blind = without_symbols(part, tmp_path / "lib", "libnvidia-ml.so.1", PROCESS_LIST)

    looks, _ = walk(blind, OPEN)

    assert_exact(looks)
    assert looks["open"].charged_bytes == cost_of(costly_machine)


def test_a_stranger_with_our_pid_is_not_taken_for_us(
    costly_machine: Machine, slice_of: SliceOf, tmp_path: Path, compile_program: Compile
) -> None:
    library = compile_program("nvml_stranger.c", flags=("-shared", "-fPIC"))
    (tmp_path / "lib").mkdir()
    shutil.copy(library, tmp_path / "lib" / "libnvidia-ml.so.1")
    part = with_libraries(slice_of(costly_machine, memory_bytes=4 * GIB), tmp_path / "lib")

    looks, _ = walk(part, OPEN)

    assert_exact(looks)
    assert looks["open"].charged_bytes == cost_of(costly_machine)


def test_threads_that_allocate_meanwhile_never_make_a_context_cheaper(
    costly_machine: Machine, slice_of: SliceOf, compile_program: Compile
) -> None:
    part = slice_of(costly_machine, memory_bytes=70 * GIB)
    library = compile_program("shim_context_threads.c", flags=("-shared", "-fPIC"))
    code = f"""
import ctypes, sys
from support.cuda_client import *
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
