"""An event tells of its last record, whatever becomes of the earlier ones.

Each earlier record stands in a stream that a function of the host holds up, so that the device gets
to it after the last one.
"""

from libvgpu.sim import Machine
from support.sim.programs import said_in

#: `held` has an event recorded in a stream that is held up, and returns what lets that go on.
#: `elapsed` is the time between two events, or the code of a refusal.
HELD = """
import threading
DONE, NOT_READY = 0, 600
open_context()
kept = []
def stream(): return check(cuda.cuStreamCreate(1))
def event(flags=0): return check(cuda.cuEventCreate(flags))
def sync(stream): check(cuda.cuStreamSynchronize(stream))
def query(event): return int(cuda.cuEventQuery(event)[0])
def elapsed(start, end):
    code, ms = cuda.cuEventElapsedTime(start, end)
    return float(ms) if int(code) == 0 else int(code)
def held(stream, record, event):
    go = threading.Event()
    wrapped = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda argument: go.wait())
    pointer = ctypes.c_void_p(ctypes.cast(wrapped, ctypes.c_void_p).value)
    kept.extend((wrapped, pointer))
    function = cuda.CUhostFn(_ptr=ctypes.addressof(pointer))
    check(cuda.cuLaunchHostFunc(stream, function, 0))
    record(event, stream)
    def release():
        go.set()
        sync(stream)
    return release
def by_call(event, stream): check(cuda.cuEventRecord(event, stream))
def by_flags(event, stream): check(cuda.cuEventRecordWithFlags(event, stream, 0))
def by_graph(event, stream):
    graph = check(cuda.cuGraphCreate(0))
    check(cuda.cuGraphAddEventRecordNode(graph, [], 0, event))
    check(cuda.cuGraphLaunch(check(cuda.cuGraphInstantiate(graph, 0)), stream))
WAYS = dict(call=by_call, flags=by_flags, graph=by_graph)
PER_THREAD = cuda.CUstream(2)
SHARED = cuda.CUevent_flags.CU_EVENT_INTERPROCESS | cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING
"""


def test_the_time_is_that_of_the_last_record(machine: Machine) -> None:
    code = """
def times(way, first, last):
    start, recorded, after = event(), event(), event()
    by_call(start, last)
    release = held(first, way, recorded)
    way(recorded, last)
    by_call(after, last)
    sync(last)
    told = [elapsed(start, recorded), elapsed(recorded, after)]
    release()
    return told + [elapsed(start, recorded), elapsed(recorded, after)]
one, other = stream(), stream()  # in lanes of the device that are looked at in this order
said = {name: times(way, one, other) for name, way in WAYS.items()}
said.update({f"{name}, back": times(way, other, one) for name, way in WAYS.items()})
said["per-thread"] = times(by_call, other, PER_THREAD)
say(**said)
"""
    for way, (to, since, later_to, later_since) in said_in(machine, HELD + code).items():
        assert to > 0 and since > 0, way
        assert (later_to, later_since) == (to, since), way


def test_an_event_is_ready_when_its_last_record_is(machine: Machine) -> None:
    code = """
def ready(way, flags):
    busy, free, begun, recorded = stream(), stream(), event(), event(flags)
    by_call(begun, free)
    release = held(busy, way, recorded)
    told = [query(recorded)]
    way(recorded, free)
    check(cuda.cuEventSynchronize(recorded))
    waiting = stream()
    check(cuda.cuStreamWaitEvent(waiting, recorded, 0))
    sync(waiting)
    told.append(query(recorded))
    way(recorded, busy)
    told.append(query(recorded))
    told.append(elapsed(begun, recorded) if not flags else NOT_READY)
    release()
    return told + [query(recorded)]
said = {name: ready(way, 0) for name, way in WAYS.items()}
say(shared=ready(by_call, SHARED), **said)
"""
    for way, told in said_in(machine, HELD + code).items():
        assert told == [600, 0, 600, 600, 0], way


def test_a_wait_is_for_the_record_that_was_the_last_when_it_was_made(machine: Machine) -> None:
    code = """
def waits(way, flags):
    busy, free, held_up, passing = stream(), stream(), stream(), stream()
    recorded = event(flags)
    release = held(busy, way, recorded)
    check(cuda.cuStreamWaitEvent(held_up, recorded, 0))
    way(recorded, free)
    check(cuda.cuStreamWaitEvent(passing, recorded, 0))
    way(recorded, busy)
    sync(passing)
    told = int(cuda.cuStreamQuery(held_up)[0])
    release()
    sync(held_up)
    return [told]
said = {name: waits(way, 0) for name, way in WAYS.items()}
say(shared=waits(by_call, SHARED), **said)
"""
    for way, told in said_in(machine, HELD + code).items():
        assert told == [600], way


def test_an_event_that_ends_before_its_records_changes_no_other(machine: Machine) -> None:
    code = """
busy, free = stream(), stream()
start, ended = event(), event()
by_call(start, free)
release = held(busy, by_call, ended)
by_call(ended, free)
check(cuda.cuEventDestroy(ended))
other = event()
by_call(other, free)
sync(free)
before = elapsed(start, other)
release()
say(before=[before], after=[elapsed(start, other)])
"""
    said = said_in(machine, HELD + code)

    assert said["before"] == said["after"]
    assert said["before"][0] > 0
