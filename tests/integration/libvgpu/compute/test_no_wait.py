"""Where the shim must not wait: in the driver's own calls of the program, and at its end."""

import json

import pytest

from libvgpu.sim import Machine
from support.shim.slices import Slice, SliceOf
from support.sim.programs import PRELUDE

GIB = 1 << 30
CAP_PERCENT = 5
NOT_PERMITTED = 800

#: Uses the share up for long: one kernel of 100 ms is 2 s of it.
IN_DEBT = """
context = open_context()
spinner = Spinner(100_000_000)
spinner.launch()
spinner.wait()
"""
IN_A_HOST_FUNCTION = (
    IN_DEBT
    + """
libcuda = ctypes.CDLL("libcuda.so.1")
other = check(cuda.cuStreamCreate(1))
told = []
def launch_here(_):
    before = time.monotonic()
    code = libcuda.cuLaunchKernel(ctypes.c_void_p(int(spinner._function)), 1, 1, 1, 1, 1, 1, 0,
                                  ctypes.c_void_p(int(other)), spinner._arguments, None)
    told.append((code, time.monotonic() - before))
call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(launch_here)
check(cuda.cuLaunchHostFunc(other, ctypes.cast(call, ctypes.c_void_p).value, 0))
check(cuda.cuStreamSynchronize(other))
before = time.monotonic()
spinner.launch()
say(here=told[0], outside=time.monotonic() - before)
"""
)
AT_THE_END = (
    """
import atexit
"""
    + IN_DEBT
    + """
@atexit.register
def clean_up():
    before = time.monotonic()
    check(cuda.cuStreamDestroy(spinner.stream))
    check(cuda.cuDevicePrimaryCtxRelease(0))
    os.write(1, b"%f\\n" % (time.monotonic() - before))
"""
)
WITH_A_REFERENCE_LEFT = """
context = open_context()
spinner = Spinner(1_500_000_000)
taken = check(cuda.cuDevicePrimaryCtxRetain(0))
spinner.launch()
before = time.monotonic()
check(cuda.cuDevicePrimaryCtxRelease(0))
released = time.monotonic() - before
running = int(cuda.cuStreamQuery(spinner.stream)[0])
check(cuda.cuDevicePrimaryCtxRelease(0))
say(released=released, running=running, ended=time.monotonic() - before)
"""
NOT_READY = 600

pytestmark = pytest.mark.virtual


@pytest.fixture
def part(machine: Machine, slice_of: SliceOf) -> Slice:
    return slice_of(machine, memory_bytes=GIB, core_percent=CAP_PERCENT)


def test_a_launch_in_a_host_function_is_refused_and_not_held(part: Slice) -> None:
    """The driver permits none there, and waiting would hold up its thread and the stream."""
    said = json.loads(" ".join(part.run(PRELUDE + IN_A_HOST_FUNCTION)))

    code, seconds = said["here"]
    assert code == NOT_PERMITTED
    assert seconds < 0.1
    assert said["outside"] > 1, "the share was used up all the while"


def test_a_process_in_debt_ends_at_once(part: Slice) -> None:
    (seconds,) = map(float, part.run(PRELUDE + AT_THE_END))

    assert seconds < 0.5


def test_a_reference_is_given_back_at_once_where_another_is_left(part: Slice) -> None:
    """The context goes on, so nothing in it needs to be settled; at its end it is."""
    said = json.loads(" ".join(part.run(PRELUDE + WITH_A_REFERENCE_LEFT)))

    assert said["released"] < 0.5
    assert said["running"] == NOT_READY
    assert said["ended"] > 1
