"""Stream captures of the simulated driver: which graph comes of them, and what they forbid."""

import pytest

from libvgpu.sim import Machine
from support.sim.graphs import GRAPHS
from support.sim.programs import run, said_in

INVALIDATED, UNMATCHED, UNJOINED, WRONG_THREAD = 901, 903, 904, 908

CAPTURE = """
other = check(cuda.cuStreamCreate(1))
def event(): return check(cuda.cuEventCreate(2))
def record(at, on): check(cuda.cuEventRecord(at, on))
def wait_for(at, on): check(cuda.cuStreamWaitEvent(on, at, 0))
def kernel(on):
    check(cuda.cuLaunchKernel(spinner._function, 1, 1, 1, 1, 1, 1, 0, on,
                              ctypes.addressof(spinner._arguments), 0))
def end_code(): return code(cuda.cuStreamEndCapture(stream))
def status(on=None): return int(check(cuda.cuStreamIsCapturing(on or stream)))
"""


def test_a_fork_and_a_join_become_edges(machine: Machine) -> None:
    code = """
fork, join = event(), event()
begin()
kernel(stream)
record(fork, stream); wait_for(fork, other)
kernel(other); kernel(stream)
record(join, other); wait_for(join, stream)
kernel(stream)
graph = end()
launch(instantiate(graph)); wait()
say(edges=edges_of(graph))
"""
    values = said_in(machine, GRAPHS + CAPTURE + code)

    assert values == {"edges": [[0, 1], [0, 2], [1, 3], [2, 3]]}
    assert machine.books()[0].clients[0].launches == 4


def test_every_kind_of_work_is_captured(machine: Machine) -> None:
    code = """
target, source = check(cuda.cuMemAlloc(8)), check(cuda.cuMemAllocHost(8))
check(cuda.cuMemsetD8(target, 0, 8))
calls = []
call = CALL(lambda _: calls.append((ctypes.c_ubyte * 1).from_address(int(target))[0]))
inner = new_graph()
add_kernel(inner)
executable = instantiate(inner)
ctypes.memset(int(source), 6, 8)
begin()
kernel(stream)
check(cuda.cuMemsetD8Async(target, 1, 8, stream))
check(cuda.cuMemcpyHtoDAsync(target, int(source), 4, stream))
check(cuda.cuLaunchHostFunc(stream, ctypes.cast(call, ctypes.c_void_p).value, 0))
check(cuda.cuGraphLaunch(executable, stream))
graph = end()
nodes = nodes_of(graph)
copy = check(cuda.cuGraphMemcpyNodeGetParams(nodes[2]))
params = check(cuda.cuGraphKernelNodeGetParams(nodes[0]))
same((bytes_of(target, 8), calls), [[0] * 8, []])  # nothing has run
executable = instantiate(graph)
for _ in range(2): launch(executable)
wait()
same(types_of(graph), [0, 2, 1, 3, 4])
same(edges_of(graph), [[0, 1], [1, 2], [2, 3], [3, 4]])
same(calls, [6, 6])
same(bytes_of(target, 8), [6] * 4 + [1] * 4)
same([int(copy.srcMemoryType), int(copy.dstMemoryType), copy.WidthInBytes], [1, 2, 4])
same(int(params.func) == int(spinner._function), True)
"""
    run(machine, GRAPHS + CAPTURE + code)
    (client,) = machine.books()[0].clients
    assert (client.launches, client.busy_ns >= 4_000_000) == (4, True)


def test_waiting_for_what_is_captured_is_refused_and_spoils_the_capture(machine: Machine) -> None:
    code = """
fork = event()
begin()
record(fork, stream); wait_for(fork, other)
same(code(cuda.cuEventQuery(fork)), CAPTURED_EVENT)
same([status(), status(other)], [1, 1])
same(code(cuda.cuStreamSynchronize(stream)), STREAM_CAPTURE_UNSUPPORTED)
same([status(), end_code(), status(other)], [2, STREAM_CAPTURE_INVALIDATED, 0])
same(code(cuda.cuStreamSynchronize(stream)), 0)
"""
    run(machine, GRAPHS + CAPTURE + code)


def test_a_fork_that_is_not_joined_ends_in_an_error(machine: Machine) -> None:
    code = """
fork = event()
begin()
kernel(stream); record(fork, stream); wait_for(fork, other); kernel(other)
unmatched = code(cuda.cuStreamEndCapture(other))
unjoined = end_code()
then = [status(), status(other)]
begin()
kernel(stream); record(fork, stream); wait_for(fork, other)
idle = end_code()   # a stream that joined and did nothing has nothing to join
say(unmatched=unmatched, unjoined=unjoined, then=then, idle=idle)
"""
    assert said_in(machine, GRAPHS + CAPTURE + code) == {
        "unmatched": UNMATCHED,
        "unjoined": UNJOINED,
        "then": [0, 0],
        "idle": 0,
    }


def test_what_comes_next_is_told_and_can_be_changed(machine: Machine) -> None:
    code = """
def info():
    status, id_, graph, nodes, data, count = check(cuda.cuStreamGetCaptureInfo(stream))
    return graph, [int(node) for node in nodes]
begin()
same(info()[1], [])
kernel(stream)
graph, (first,) = info()
own = check(cuda.cuGraphAddEmptyNode(graph, [], 0))
check(cuda.cuStreamUpdateCaptureDependencies(stream, [own], None, 1, 0))
same(info()[1] == [first, int(own)], True)
kernel(stream)
Set = cuda.CUstreamUpdateCaptureDependencies_flags.CU_STREAM_SET_CAPTURE_DEPENDENCIES
check(cuda.cuStreamUpdateCaptureDependencies(stream, [own], None, 1, int(Set)))
kernel(stream)
foreign = code(cuda.cuStreamUpdateCaptureDependencies(stream, [add_empty(new_graph())], None, 1, 0))
captured = end()
same(foreign, INVALID_VALUE)
same(int(graph) == int(captured), True)
same(edges_of(captured), [[0, 2], [1, 2], [1, 3]])
same(code(cuda.cuStreamUpdateCaptureDependencies(stream, [own], None, 1, 0)), ILLEGAL_STATE)
"""
    run(machine, GRAPHS + CAPTURE + code)


def test_a_capture_into_a_graph_goes_on_behind_its_nodes(machine: Machine) -> None:
    code = """
graph = new_graph()
a, b = add_empty(graph), add_empty(graph)
check(cuda.cuStreamBeginCaptureToGraph(
    stream, graph, [b], None, 1, Mode.CU_STREAM_CAPTURE_MODE_GLOBAL))
kernel(stream)
meanwhile = [code(cuda.cuGraphInstantiate(graph, 0)), code(cuda.cuGraphDestroy(graph)),
             code(cuda.cuGraphDestroyNode(a))]
same(int(end()) == int(graph), True)
same(meanwhile, [INVALID_VALUE] * 3)
same(edges_of(graph), [[1, 2]])
same(code(cuda.cuGraphInstantiate(graph, 0)), 0)
"""
    run(machine, GRAPHS + CAPTURE + code)


def test_two_captures_and_the_world_outside_do_not_mix(machine: Machine) -> None:
    code = """
relaxed = Mode.CU_STREAM_CAPTURE_MODE_RELAXED
outside, inside = event(), event()
record(outside, other)
begin(relaxed)
same(code(cuda.cuStreamWaitEvent(stream, outside, 0)), STREAM_CAPTURE_ISOLATION)
same(end_code(), STREAM_CAPTURE_INVALIDATED)
begin(relaxed); begin(relaxed, other)
kernel(other); record(inside, other)
same(code(cuda.cuStreamWaitEvent(stream, inside, 0)), STREAM_CAPTURE_MERGE)
same([end_code(), code(cuda.cuStreamEndCapture(other))], [STREAM_CAPTURE_INVALIDATED] * 2)
same([code(cuda.cuStreamBeginCapture(stream, relaxed)),
      code(cuda.cuStreamBeginCapture(stream, relaxed))], [0, ILLEGAL_STATE])
"""
    run(machine, GRAPHS + CAPTURE + code)


def test_the_legacy_stream_is_of_no_use_beside_a_blocking_capture(machine: Machine) -> None:
    code = """
relaxed = Mode.CU_STREAM_CAPTURE_MODE_RELAXED
target = check(cuda.cuMemAlloc(8))
same(code(cuda.cuStreamBeginCapture(0, relaxed)), STREAM_CAPTURE_UNSUPPORTED)
begin(relaxed)
same((code(cuda.cuStreamIsCapturing(0)), status()), [STREAM_CAPTURE_IMPLICIT, 1])
same((code(cuda.cuMemsetD8(target, 1, 8)), status()), [STREAM_CAPTURE_IMPLICIT, 2])
same(end_code(), STREAM_CAPTURE_INVALIDATED)
begin(relaxed)
same((code(cuda.cuStreamSynchronize(0)), status()), [STREAM_CAPTURE_IMPLICIT, 2])
end_code()
same(code(cuda.cuMemsetD8(target, 1, 8)), 0)
begin(relaxed, other)   # which is a non-blocking one
same((code(cuda.cuMemsetD8(target, 1, 8)), status(other)), [0, 1])
"""
    run(machine, GRAPHS + CAPTURE + code)


@pytest.mark.parametrize(
    ("capture", "own_thread", "allowed"),
    [
        ("GLOBAL", "GLOBAL", {"same": False, "other": False, "other_local": True}),
        ("THREAD_LOCAL", "GLOBAL", {"same": False, "other": True, "other_local": True}),
        ("THREAD_LOCAL", "RELAXED", {"same": True, "other": True, "other_local": True}),
        ("RELAXED", "GLOBAL", {"same": True, "other": True, "other_local": True}),
    ],
)
def test_who_may_allocate_beside_a_capture(
    machine: Machine, capture: str, own_thread: str, allowed: dict[str, bool]
) -> None:
    values = said_in(
        machine,
        GRAPHS
        + CAPTURE
        + f"""
import threading
capture = Mode.CU_STREAM_CAPTURE_MODE_{capture}
own = Mode.CU_STREAM_CAPTURE_MODE_{own_thread}
"""
        + """
def on_thread(function):
    answers = []
    def body():
        check(cuda.cuCtxSetCurrent(context)); answers.append(function())
    thread = threading.Thread(target=body); thread.start(); thread.join()
    return answers[0]
def allocate(): return code(cuda.cuMemAlloc(4096))
def locally():
    check(cuda.cuThreadExchangeStreamCaptureMode(Mode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
    return allocate()
check(cuda.cuThreadExchangeStreamCaptureMode(own))
def beside(function):
    begin(capture)
    answer = function()
    spoilt = status() == 2
    end_code()
    return answer == 0 and not spoilt or (False if answer == 900 and spoilt else answer)
say(same=beside(allocate), other=beside(lambda: on_thread(allocate)),
    other_local=beside(lambda: on_thread(locally)))
""",
    )

    assert values == allowed


@pytest.mark.parametrize(
    "call",
    [
        "cuEventQuery(event())",
        "cuMemPoolGetAttribute(pool, kept)",
        "cuMemPoolSetAttribute(pool, kept, cuda.cuuint64_t(0))",
        "cuMemPoolTrimTo(pool, 0)",
        "cuModuleUnload(module)",
        "cuLibraryUnload(library)",
    ],
)
def test_what_a_capture_forbids_spoils_it(machine: Machine, call: str) -> None:
    code = f"""
pool = check(cuda.cuDeviceGetDefaultMemPool(0))
kept = cuda.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
ptx = b".version 7.0\\n.target sm_70\\n.visible .entry empty(){{ret;}}\\0"
module = check(cuda.cuModuleLoadData(ptx))
library = check(cuda.cuLibraryLoadData(ptx, [], [], 0, [], [], 0))
begin()
same(code(cuda.{call}), 900)
same([status(), end_code()], [2, STREAM_CAPTURE_INVALIDATED])
same(code(cuda.{call}), 0)
"""
    run(machine, GRAPHS + CAPTURE + code)


def test_a_capture_ends_on_the_thread_that_began_it_unless_relaxed(machine: Machine) -> None:
    code = """
import threading
def end_elsewhere():
    answers = []
    def body():
        check(cuda.cuCtxSetCurrent(context)); answers.append(end_code())
    thread = threading.Thread(target=body); thread.start(); thread.join()
    return answers[0]
begin(Mode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
strict = end_elsewhere(), end_code()
begin(Mode.CU_STREAM_CAPTURE_MODE_RELAXED)
say(strict=strict, relaxed=end_elsewhere())
"""
    assert said_in(machine, GRAPHS + CAPTURE + code) == {"strict": [WRONG_THREAD, 0], "relaxed": 0}


def test_external_events_become_nodes_and_join_nothing(machine: Machine) -> None:
    code = """
outside = event()
begin()
check(cuda.cuStreamWaitEvent(stream, outside, 1))
kernel(stream)
check(cuda.cuEventRecordWithFlags(outside, stream, 1))
graph = end()
launch(instantiate(graph))
check(cuda.cuEventSynchronize(outside))
say(types=types_of(graph), edges=edges_of(graph))
"""
    assert said_in(machine, GRAPHS + CAPTURE + code) == {
        "types": [6, 0, 7],
        "edges": [[0, 1], [1, 2]],
    }


def test_a_destroyed_stream_leaves_its_capture_spoilt_or_ended(machine: Machine) -> None:
    code = """
fork, strict = event(), Mode.CU_STREAM_CAPTURE_MODE_GLOBAL
begin(strict)
kernel(stream); record(fork, stream); wait_for(fork, other); kernel(other)
check(cuda.cuStreamDestroy(other))
joined = status(), end_code()
begun = check(cuda.cuStreamCreate(0))
begin(strict, begun)
check(cuda.cuStreamDestroy(begun))
say(joined=joined, after=code(cuda.cuMemAlloc(4096)))
"""
    assert said_in(machine, GRAPHS + CAPTURE + code) == {"joined": [2, INVALIDATED], "after": 0}


def test_a_joined_stream_may_be_destroyed_before_the_capture_ends(machine: Machine) -> None:
    code = """
fork, join, third = event(), event(), check(cuda.cuStreamCreate(1))
begin()
kernel(stream); record(fork, stream); wait_for(fork, other); wait_for(fork, third)
kernel(other); record(join, other); wait_for(join, third)
check(cuda.cuStreamDestroy(other))
kernel(third); record(join, third); wait_for(join, stream)
check(cuda.cuStreamDestroy(third))
kernel(stream)
graph = end()
launch(instantiate(graph)); wait()
say(edges=edges_of(graph))
"""
    values = said_in(machine, GRAPHS + CAPTURE + code)

    assert values["edges"] == [[0, 1], [0, 2], [0, 3], [1, 2], [2, 3]]
    assert machine.books()[0].clients[0].launches == 4
