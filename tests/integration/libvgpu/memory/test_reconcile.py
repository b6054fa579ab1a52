"""What the hooks do not see of a process is charged by NVML's figure, at quiet moments."""

import shutil
import signal
import sys
from pathlib import Path

import pytest

from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.sim import Machine
from libvgpu.sim.faults import CallFaults
from support import Compile
from support.ended import run_to_end
from support.lines import expect, next_line, tell
from support.shim.lacking import with_libraries, without_symbols
from support.shim.lazy_code import START
from support.shim.slices import Slice, SliceOf
from support.sim.measured import measured_machine
from support.user_home import UserHome
from support.waiting import PATIENCE_S

MIB = 1 << 20
GIB = 1 << 30
CONTEXT_MIB = 518
OUT_OF_MEMORY, DEINITIALIZED = 2, 4


def numbers(part: Slice, code: str, *arguments: str) -> list[int]:
    return [int(word) for word in part.run(START + code, *arguments)]


def kind_bytes(part: Slice, kind: str) -> int:
    return part.usage().devices[0].kind_bytes[kind]


@pytest.fixture(params=["ideal", "measured"])
def part(request: pytest.FixtureRequest, tmp_path: Path, slice_of: SliceOf) -> Slice:
    """A slice of 4 GiB, on a GPU without friction and on one as it was measured."""
    if request.param == "ideal":
        return slice_of(request.getfixturevalue("costly_machine"), memory_bytes=4 * GIB)
    return slice_of(measured_machine(tmp_path), memory_bytes=4 * GIB)


def test_what_first_launches_load_is_charged_at_a_quiet_moment_and_given_back(part: Slice) -> None:
    code = """
large, small = lazy(93), lazy(18)
launch(large); launch(small); launch(large)
quiet(); print(beyond())
check(driver.cuLibraryUnload(large))
quiet(); print(beyond())
check(driver.cuDevicePrimaryCtxRelease(0))
print(device_bytes(), ledger_bytes())
"""
    assert numbers(part, code) == [0, 0, 0, 0]


def test_it_is_charged_as_other(part: Slice) -> None:
    process = part.start(START + "launch(lazy(93)); quiet(); print('ready', flush=True); input()")
    expect(process)

    assert 93 * MIB <= kind_bytes(part, "other") <= 94 * MIB  # in whole blocks, where there are any


def test_beyond_the_limit_it_is_charged_and_the_next_allocation_refused(part: Slice) -> None:
    code = """
held = check(driver.cuMemAlloc(4096 * MIB - ledger_bytes() - 50 * MIB))
print(launch(lazy(93)))
quiet(); print(beyond(), int(ledger_bytes() >= 4139 * MIB), code(driver.cuMemAlloc(1)))
check(driver.cuMemFree(held)); print(code(driver.cuMemAlloc(MIB)))
"""
    assert numbers(part, code) == [0, 0, 1, OUT_OF_MEMORY, 0]


def test_a_context_that_ends_takes_it_along_though_others_stay(part: Slice) -> None:
    code = """
loaded = lazy(93)
second = check(create_context())
launch(loaded)
quiet(); print(beyond())
check(driver.cuCtxDestroy(second))
check(driver.cuCtxSetCurrent(context))
print(beyond(), launch(loaded))
quiet(); print(beyond())
"""
    assert numbers(part, code) == [0, 0, 0, 0]


def test_what_neighbours_take_does_not_count(part: Slice, slice_of: SliceOf) -> None:
    neighbour = slice_of(part.machine, memory_bytes=16 * GIB)
    other = neighbour.start(
        START + "print('ready', flush=True); input();"
        "held = check(driver.cuMemAlloc(8192 * MIB)); launch(lazy(93)); quiet();"
        "print(ledger_bytes(), flush=True); input()"
    )
    next_line(other)
    own = part.start(
        START + "print(ledger_bytes(), flush=True); input(); quiet();"
        "check(driver.cuMemAlloc(MIB)); quiet(); print(ledger_bytes(), flush=True)"
    )
    begun = int(next_line(own))
    tell(other, "go")
    next_line(other)
    tell(own, "go")

    assert 0 < int(next_line(own)) - begun <= 2 * MIB


def test_a_piece_that_was_exported_is_not_charged_twice(part: Slice) -> None:
    importer = """
import ctypes, sys
from support.shim.cuda_client import *
open_context()
handle = driver.CUipcMemHandle()
ctypes.memmove(handle.getPtr(), bytes.fromhex(sys.argv[1]), 64)
check(driver.cuIpcOpenMemHandle(handle, 1))
import time; time.sleep(1.1); check(driver.cuCtxSynchronize())
print("ready", flush=True); input()
"""
    code = f"""
import ctypes, subprocess
held = check(driver.cuMemAlloc(64 * MIB))
handle = ctypes.string_at(check(driver.cuIpcGetMemHandle(held)).getPtr(), 64)
other = subprocess.Popen([sys.executable, "-c", {importer!r}, handle.hex()],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
other.stdout.readline()
quiet(); print(beyond()); launch(lazy(93)); quiet(); print(beyond())
other.communicate(b"\\n")
"""
    assert numbers(part, code) == [0, 0]


def test_memory_that_is_charged_and_not_taken_hides_as_much(
    tmp_path: Path, slice_of: SliceOf
) -> None:
    """Managed memory is taken as it is touched; the ledger never has less than the GPU gave."""
    part = slice_of(measured_machine(tmp_path), memory_bytes=4 * GIB)

    code = """
managed = check(driver.cuMemAllocManaged(200 * MIB, 1))
launch(lazy(93))
quiet(); print(beyond() // MIB)
check(driver.cuMemFree(managed))
quiet(); print(beyond())
"""
    assert numbers(part, code) == [94 - 200, 0]


def test_a_forked_child_is_charged_nothing_of_its_parents(part: Slice) -> None:
    code = """
launch(lazy(93)); quiet()
before = ledger_bytes()
child = os.fork()
if child == 0:
    time.sleep(1.1)
    os._exit(code(driver.cuMemAlloc(1)) == 0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), ledger_bytes() - before, beyond())
"""
    assert numbers(part, code) == [0, 0, 0]


# ---- which figures are believed ----------------------------------------------------------------


@pytest.fixture
def stranger(tmp_path: Path, compile_program: Compile) -> Path:
    """A directory with an NVML that answers by a script."""
    library = compile_program("nvml_stranger.c", flags=("-shared", "-fPIC"))
    directory = tmp_path / "lib"
    directory.mkdir()
    shutil.copy(library, directory / "libnvidia-ml.so.1")
    return directory


UNKNOWN = 2**64 - 1
#: The first two answers are to the questions before and after the context was made.
#: NVML is asked again once the GPU has moved.
MOVED = "launch(lazy(1)); quiet();"
ALLOCATED = f"check(driver.cuMemAlloc(64 * MIB)); {MOVED}"


@pytest.mark.parametrize(
    ("listed", "used", "then", "charged_mib"),
    [
        pytest.param(";518;600", None, "", 600, id="listed once"),
        pytest.param(";518;600;600;550", None, MOVED, 550, id="less is given back"),
        pytest.param(";518;700;600", None, "", 600, id="the lesser of two looks"),
        pytest.param(";518;600;600;0", None, MOVED, 600, id="nothing"),
        pytest.param(";518;600;600;", None, MOVED, 600, id="not listed"),
        pytest.param(f";518;600;600;{UNKNOWN}", None, MOVED, 600, id="not available"),
        pytest.param(";518;600,600;600", None, MOVED, 518, id="listed twice, once"),
        pytest.param("1;518;600", None, "", 518, id="listed before us"),
        pytest.param(";518;600", "0;518;550", "", 518, id="more than the GPU has in use"),
        pytest.param(";518;600;600;50", None, ALLOCATED, 664, id="less than was taken"),
        pytest.param(";518;600;600;600", None, ALLOCATED, 664, id="stands still"),
        pytest.param(";518;600;600;664", None, ALLOCATED, 664, id="moves with us"),
    ],
)
def test_a_figure_is_believed_that_can_only_be_ours(
    costly_machine: Machine,
    slice_of: SliceOf,
    stranger: Path,
    monkeypatch: pytest.MonkeyPatch,
    listed: str,
    used: str | None,
    then: str,
    charged_mib: int,
) -> None:
    part = slice_of(costly_machine, memory_bytes=4 * GIB)
    part.change(context_bytes=CONTEXT_MIB * MIB)
    monkeypatch.setenv("NVML_LISTED", listed)
    asked = stranger / "asked"
    monkeypatch.setenv("NVML_ASKED", str(asked))
    if used is not None:
        monkeypatch.setenv("NVML_USED", used)

    seen = numbers(with_libraries(part, stranger), f"quiet(); {then} print(ledger_bytes() // MIB)")

    assert seen == [charged_mib]
    assert asked.stat().st_size > listed.count(";")


def test_nvml_is_asked_no_more_than_once_a_second(
    costly_machine: Machine,
    slice_of: SliceOf,
    stranger: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    part = slice_of(costly_machine, memory_bytes=4 * GIB)
    monkeypatch.setenv("NVML_LISTED", ";518")
    monkeypatch.setenv("NVML_ASKED", str(tmp_path / "asked"))
    seconds = 3

    code = f"""
end = time.monotonic() + {seconds}
while time.monotonic() < end:
    check(driver.cuMemFree(check(driver.cuMemAlloc(MIB)))); check(driver.cuCtxSynchronize())
"""
    numbers(with_libraries(part, stranger), code)

    context = 2
    assert context + 1 <= (tmp_path / "asked").stat().st_size <= context + seconds + 1


def test_a_driver_that_shuts_down_is_the_end_of_asking(
    costly_machine: Machine,
    slice_of: SliceOf,
    stranger: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    part = slice_of(costly_machine, memory_bytes=4 * GIB)
    monkeypatch.setenv("NVML_LISTED", ";518")
    monkeypatch.setenv("NVML_ASKED", str(tmp_path / "asked"))
    code = """
print("ready", flush=True); input()
print(int(driver.cuDevicePrimaryCtxRelease(0)[0]), flush=True); input()
print(code(driver.cuMemAlloc(MIB)), code(driver.cuDevicePrimaryCtxRelease(0)))
"""
    program = with_libraries(part, stranger).start(START + code)
    expect(program, "ready")
    asked = (tmp_path / "asked").stat().st_size

    costly_machine.set_call_faults(CallFaults(code=DEINITIALIZED, code_count=1000))
    tell(program)
    expect(program, str(DEINITIALIZED))
    costly_machine.set_call_faults(CallFaults())
    tell(program)
    assert program.communicate(timeout=PATIENCE_S)[0] == "0 0\n"

    assert (tmp_path / "asked").stat().st_size == asked


def test_nvml_is_not_called_after_the_programs_end_has_begun(
    machine: Machine, slice_of: SliceOf, compile_program: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = (f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1")
    program = compile_program("late_free.c", flags=flags)
    part = slice_of(machine, memory_bytes=GIB)
    monkeypatch.setenv("VGPU_SIM_NVML_POISONED", "1")

    done = run_to_end([program], env=part.environment())
    calling = run_to_end([program, "native"], env=part.environment())

    assert (done.returncode, done.stdout, done.stderr) == (0, "freed\n", "")
    assert (calling.returncode, calling.stderr) == (
        -signal.SIGABRT,
        "simulated libnvidia-ml: called after its end\n",
    )


@pytest.mark.virtual
def test_beside_a_neighbour_that_moves_nvml_is_asked_ever_less(
    costly_machine: Machine,
    slice_of: SliceOf,
    stranger: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    part = slice_of(costly_machine, memory_bytes=4 * GIB)
    monkeypatch.setenv("NVML_LISTED", ";518")
    monkeypatch.setenv("NVML_ASKED", str(tmp_path / "asked"))
    seconds, in_vain, seconds_an_answer = 96, 32, 16
    neighbour = "while True: check(driver.cuMemAlloc(MIB)); time.sleep(0.5)"
    part.start(START + neighbour, shim=False)

    code = f"""
end = time.monotonic() + {seconds}
while time.monotonic() < end:
    time.sleep(0.1); check(driver.cuCtxSynchronize())
"""
    numbers(with_libraries(part, stranger), code)

    context = 2
    asked = (tmp_path / "asked").stat().st_size - context
    assert in_vain <= asked <= in_vain + seconds / seconds_an_answer + 1


def test_where_nvml_does_not_tell_nothing_is_charged_and_that_is_said(
    costly_machine: Machine, slice_of: SliceOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VGPU_LOG", "info")
    part = slice_of(costly_machine, memory_bytes=4 * GIB)
    blind = without_symbols(
        part,
        tmp_path / "lib",
        "libnvidia-ml.so.1",
        *(f"nvmlDeviceGetComputeRunningProcesses{version}" for version in ("_v2", "_v3")),
    )

    process = blind.start(START + "launch(lazy(93)); quiet(); quiet(); print(beyond() // MIB)")
    stdout, stderr = process.communicate(timeout=PATIENCE_S)

    assert stdout.split() == ["93"]
    assert stderr.count("what its first launches load") == 1


def test_a_run_without_an_agent_is_as_true(tmp_path: Path) -> None:
    home = UserHome(tmp_path)
    client = [sys.executable, "-c", START + "launch(lazy(93)); quiet(); print(beyond())"]

    done = home.vgpuctl(
        *("run", "--simulate", "h100", "--memory", "4Gi", "--", *client),
        VGPU_SIM_CALIBRATION="h100",
    )

    assert (done.stdout.split(), done.returncode) == (["0"], 0), done.stderr
