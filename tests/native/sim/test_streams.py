"""Streams of one simulated process: side by side, in order where they must be."""

import pytest

from libvgpu.sim import PROFILES, Machine
from support.sim.programs import run, said_in

pytestmark = pytest.mark.virtual

MS = 1_000_000

#: `Work` launches kernels on any stream; `took` gives the device time between two of its marks.
STREAMS = """
import threading
open_context()
class Work(Spinner):
    def __init__(self, stream, kernel_ns):
        super().__init__(kernel_ns)
        self.stream = stream
    def mark(self):
        event = check(cuda.cuEventCreate(0))
        check(cuda.cuEventRecord(event, self.stream))
        return event
def took(start, end):
    check(cuda.cuEventSynchronize(end))
    return check(cuda.cuEventElapsedTime(start, end))
def stream(flags=1, priority=0):
    return check(cuda.cuStreamCreateWithPriority(flags, priority))
def host_function(call):
    wrapped = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda argument: call())
    kept.append(wrapped)
    pointer = ctypes.c_void_p(ctypes.cast(wrapped, ctypes.c_void_p).value)
    kept.append(pointer)
    return cuda.CUhostFn(_ptr=ctypes.addressof(pointer))
kept = []
"""


def test_kernels_of_two_streams_share_the_device(machine: Machine) -> None:
    code = """
one, other = Work(stream(), 40_000_000), Work(stream(), 40_000_000)
start, beside = one.mark(), other.mark()
one.launch(); other.launch()
end, after = one.mark(), other.mark()
say(one=took(start, end), other=took(beside, after))
"""
    said = said_in(machine, STREAMS + code)

    assert said["one"] == pytest.approx(80, rel=0.02)  # both at half speed
    assert said["other"] == pytest.approx(80, rel=0.02)
    assert machine.books()[0].busy_ns == pytest.approx(80 * MS, abs=1000)


def test_a_copy_goes_on_beside_a_kernel(machine: Machine) -> None:
    size = 8 << 20
    code = f"""
size = {size}
address = check(cuda.cuMemAlloc(size))
copying, kernel = Work(stream(), 1), Work(stream(), 500_000_000)
data = bytes(size)
kernel.launch()
start = copying.mark()
for _ in range(20): check(cuda.cuMemcpyHtoDAsync(address, data, size, copying.stream))
end = copying.mark()
say(copy=took(start, end), kernel=int(cuda.cuStreamQuery(kernel.stream)[0]))
"""
    said = said_in(machine, STREAMS + code)
    alone_ms = 20 * size / PROFILES["h100-80g"].pcie_bytes_per_second * 1e3

    assert said["kernel"] == 600
    assert alone_ms <= said["copy"] < 200  # the host moves the bytes, and may be the slower one


def test_the_stream_of_higher_priority_goes_first(machine: Machine) -> None:
    code = """
low, high = Work(stream(1, 0), 60_000_000), Work(stream(1, -5), 20_000_000)
start, beside = low.mark(), high.mark()
low.launch(); high.launch()
end, after = low.mark(), high.mark()
say(high=took(beside, after), low=took(start, end))
"""
    said = said_in(machine, STREAMS + code)

    assert said["high"] == pytest.approx(20, rel=0.1)
    assert said["low"] == pytest.approx(80, rel=0.02)


def test_the_default_stream_waits_for_blocking_streams_and_they_for_it(machine: Machine) -> None:
    code = """
blocking, default = Work(stream(0), 30_000_000), Work(cuda.CUstream(0), 30_000_000)
beside = Work(stream(1), 1)
start = blocking.mark()
blocking.launch()
second = default.mark()
default.launch()
late = Work(stream(0), 30_000_000)
third = late.mark()
late.launch()
end = late.mark()
free = beside.mark()
check(cuda.cuEventSynchronize(free))
say(not_held=int(cuda.cuEventQuery(second)[0]), second=took(start, second),
    third=took(start, third), end=took(start, end))
"""
    said = said_in(machine, STREAMS + code)

    assert said["not_held"] == 600  # a non-blocking stream did not wait for any of it
    assert said["second"] == pytest.approx(30, rel=0.03)
    assert said["third"] == pytest.approx(60, rel=0.03)
    assert said["end"] == pytest.approx(90, rel=0.03)


def test_waiting_for_the_default_stream_waits_for_the_blocking_ones(machine: Machine) -> None:
    code = """
blocking = Work(stream(0), 50_000_000)
free = Work(stream(1), 500_000_000)
blocking.launch(); free.launch()
early = int(cuda.cuStreamQuery(cuda.CUstream(0))[0])
check(cuda.cuStreamSynchronize(cuda.CUstream(0)))
say(early=early, blocking=int(cuda.cuStreamQuery(blocking.stream)[0]),
    free=int(cuda.cuStreamQuery(free.stream)[0]))
"""
    assert said_in(machine, STREAMS + code) == {"early": 600, "blocking": 0, "free": 600}


def test_an_event_holds_back_the_stream_that_waits_for_it(machine: Machine) -> None:
    code = """
first, second = Work(stream(), 50_000_000), Work(stream(), 10_000_000)
start = first.mark()
first.launch()
done = first.mark()
check(cuda.cuStreamWaitEvent(second.stream, done, 0))
second.launch()
say(end=took(start, second.mark()))
"""
    assert said_in(machine, STREAMS + code)["end"] == pytest.approx(60, rel=0.02)


def test_work_behind_a_host_function_waits_for_its_return(machine: Machine) -> None:
    code = """
work = Work(stream(), 1_000_000)
go, seen = threading.Event(), []
check(cuda.cuLaunchHostFunc(work.stream, host_function(lambda: seen.append(go.wait(60))), 0))
work.launch()
behind = work.mark()
other = Work(stream(), 1_000_000)
other.launch(); other.wait()
held = int(cuda.cuEventQuery(behind)[0])
begun = time.monotonic()
go.set()
work.wait()
say(held=held, seen=seen, late=time.monotonic() - begun)
"""
    said = said_in(machine, STREAMS + code)

    assert said["held"] == 600
    assert said["seen"] == [True]
    assert said["late"] < 0.015  # a release wakes who waits, long before it looks again by itself


def test_a_host_function_that_blocks_holds_up_its_own_stream_only(machine: Machine) -> None:
    code = """
one, other = Work(stream(), 1_000_000), Work(stream(), 1_000_000)
go, order = threading.Event(), []
check(cuda.cuLaunchHostFunc(one.stream, host_function(lambda: (go.wait(60), order.append(1))), 0))
check(cuda.cuLaunchHostFunc(other.stream, host_function(lambda: (order.append(2), go.set())), 0))
one.wait(); other.wait()
say(order=order)
"""
    assert said_in(machine, STREAMS + code) == {"order": [2, 1]}


def test_more_streams_than_lanes_all_do_their_work(machine: Machine) -> None:
    code = """
many = [Work(stream(i % 2), 1_000_000) for i in range(40)]
for _ in range(5):
    for work in many: work.launch()
check(cuda.cuCtxSynchronize())
for work in many: check(cuda.cuStreamDestroy(work.stream))
say(done=True)
"""
    run(machine, STREAMS + code)
    (books,) = machine.books()

    assert books.clients[0].busy_ns == 200 * MS
    assert books.busy_ns == pytest.approx(200 * MS, abs=1000)  # each step rounds up
    assert books.clients[0].launches == 200


def test_an_event_of_another_device_holds_back_a_stream(two_gpus: Machine) -> None:
    code = """
first = Work(stream(), 60_000_000)
launched = time.monotonic_ns()
first.launch()
done = first.mark()
second_context = check(cuda.cuDevicePrimaryCtxRetain(1))
check(cuda.cuCtxSetCurrent(second_context))
second = Work(stream(), 10_000_000)
begun = time.monotonic_ns()
check(cuda.cuStreamWaitEvent(second.stream, done, 0))
second.launch()
issued = time.monotonic_ns() - begun
second.wait()
say(issued=issued, ended=time.monotonic_ns() - launched)
"""
    said = said_in(two_gpus, STREAMS + code)

    assert said["issued"] < 30_000_000  # the host does not wait
    assert said["ended"] >= 70_000_000


def test_a_stream_can_go_while_its_work_goes_on(machine: Machine) -> None:
    code = """
work, seen = Work(stream(), 30_000_000), []
work.launch()
check(cuda.cuLaunchHostFunc(work.stream, host_function(lambda: seen.append(1)), 0))
check(cuda.cuStreamDestroy(work.stream))
early = list(seen)
check(cuda.cuCtxSynchronize())
say(early=early, late=seen)
"""
    assert said_in(machine, STREAMS + code) == {"early": [], "late": [1]}
