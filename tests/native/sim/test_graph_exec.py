"""Executable graphs of the simulated driver: launching, updating and changing them."""

from libvgpu.sim import Machine
from support.sim.graphs import GRAPHS
from support.sim.programs import run, said_in

INVALID_VALUE, UPDATE_FAILURE = 1, 910


def test_an_executable_graph_outlives_its_graph_and_is_launched_again(machine: Machine) -> None:
    code = """
graph = new_graph()
add_kernel(graph)
executable = instantiate(graph, 8)
check(cuda.cuGraphDestroy(graph))
for _ in range(3): launch(executable)
check(cuda.cuGraphExecDestroy(executable))
wait(); say()
"""
    said_in(machine, GRAPHS + code)

    assert machine.books()[0].clients[0].launches == 3


def test_flags_are_checked_and_told(machine: Machine) -> None:
    code = """
graph = new_graph()
add_kernel(graph)
params = cuda.CUDA_GRAPH_INSTANTIATE_PARAMS()
params.flags, params.hUploadStream = 2 | 8, stream
executable = check(cuda.cuGraphInstantiateWithParams(graph, params))
host = new_graph()
node = add_host(host, lambda _: None)
on_device = cuda.CUDA_GRAPH_INSTANTIATE_PARAMS()
on_device.flags = 4
same(code(cuda.cuGraphInstantiateWithParams(host, on_device)), INVALID_VALUE)
same(int(check(cuda.cuGraphExecGetFlags(executable))), 10)
same(code(cuda.cuGraphInstantiate(graph, 5)), INVALID_VALUE)
same(code(cuda.cuGraphInstantiate(graph, 64)), INVALID_VALUE)
same(int(on_device.result_out), 3)
same(int(on_device.hErrNode_out) == int(node), True)
"""
    run(machine, GRAPHS + code)


def test_destroying_a_graph_under_way_lets_it_finish(machine: Machine) -> None:
    code = """
import threading
held, release, seen = threading.Event(), threading.Event(), []
target = check(cuda.cuMemAlloc(4))
check(cuda.cuMemsetD8(target, 1, 4))
graph = new_graph()
a = add_host(graph, lambda _: (held.set(), release.wait()))
b = add_fill(graph, target, 9, [a])
add_host(graph, lambda _: seen.append((ctypes.c_ubyte * 1).from_address(int(target))[0]), [b])
executable = instantiate(graph)
launch(executable); held.wait()
before = (ctypes.c_ubyte * 1).from_address(int(target))[0]
check(cuda.cuGraphExecMemsetNodeSetParams(executable, b, fill_params(target, 5), context))
check(cuda.cuGraphExecDestroy(executable)); check(cuda.cuGraphDestroy(graph))
release.set(); wait()
say(before=before, seen=seen)
"""
    assert said_in(machine, GRAPHS + code) == {"before": 1, "seen": [9]}


def test_launches_of_one_graph_in_two_streams_are_in_order(machine: Machine) -> None:
    code = """
import threading
other = check(cuda.cuStreamCreate(1))
running, most, release, held = [], [], threading.Event(), threading.Event()
def work(_):
    running.append(1); held.set(); release.wait(); most.append(len(running)); running.pop()
graph = new_graph()
add_host(graph, work)
executable = instantiate(graph)
launch(executable); check(cuda.cuGraphLaunch(executable, other))
held.wait(); release.set()
wait(); check(cuda.cuStreamSynchronize(other))
say(most=most)
"""
    assert said_in(machine, GRAPHS + code) == {"most": [1, 1]}


def test_single_nodes_of_an_executable_graph_change_and_the_graph_does_not(
    machine: Machine,
) -> None:
    code = """
one, two = check(cuda.cuMemAlloc(8)), check(cuda.cuMemAlloc(8))
calls = []
graph, child = new_graph(), new_graph()
kernel = add_kernel(graph)
fill = add_fill(graph, one, 1)
plane = add_fill(graph, one, 1, width=2, height=2, pitch=4)
call = add_host(graph, lambda _: calls.append("old"), [fill])
add_fill(child, one, 2)
nested = check(cuda.cuGraphAddChildGraphNode(graph, [call], 1, child))
inner = nodes_of(check(cuda.cuGraphChildGraphNodeGetGraph(nested)))[0]
executable = instantiate(graph)
other_child = new_graph()
add_fill(other_child, two, 3)
set_ = [
    code(cuda.cuGraphExecKernelNodeSetParams(executable, kernel, kernel_params(6_000_000))),
    code(cuda.cuGraphExecMemsetNodeSetParams(executable, fill, fill_params(two, 8), context)),
    code(cuda.cuGraphExecMemsetNodeSetParams(
        executable, plane, fill_params(one, 4, width=4, height=1), context)),
    code(cuda.cuGraphExecHostNodeSetParams(
        executable, call, host_params(lambda _: calls.append("new")))),
    code(cuda.cuGraphExecChildGraphNodeSetParams(executable, nested, other_child)),
    code(cuda.cuGraphExecHostNodeSetParams(executable, kernel, host_params(lambda _: None))),
    code(cuda.cuGraphExecKernelNodeSetParams(executable, inner, kernel_params())),
    code(cuda.cuGraphExecNodeSetParams(executable, inner, None)),
]
check(cuda.cuMemsetD8(two, 0, 8))
launch(executable); wait()
say(set=set_, calls=calls, two=bytes_of(two, 4),
    graph=check(cuda.cuGraphMemsetNodeGetParams(fill)).value)
"""
    values = said_in(machine, GRAPHS + code)

    invalid = INVALID_VALUE
    assert values == {
        "set": [0, 0, invalid, 0, 0, invalid, invalid, invalid],
        "calls": ["new"],
        "two": [3, 3, 3, 3],
        "graph": 1,
    }
    assert machine.books()[0].busy_ns >= 6_000_000


def test_disabled_nodes_do_nothing(machine: Machine) -> None:
    code = """
target = check(cuda.cuMemAlloc(4))
check(cuda.cuMemsetD8(target, 0, 4))
graph = new_graph()
kernel, fill, empty = add_kernel(graph), add_fill(graph, target, 1), add_empty(graph)
executable = instantiate(graph)
for node in (kernel, fill): check(cuda.cuGraphNodeSetEnabled(executable, node, 0))
launch(executable); wait()
off = bytes_of(target, 1)[0]
state = [check(cuda.cuGraphNodeGetEnabled(executable, kernel))]
check(cuda.cuGraphNodeSetEnabled(executable, fill, 1))
launch(executable); wait()
say(off=off, on=bytes_of(target, 1)[0], state=state,
    empty=code(cuda.cuGraphNodeSetEnabled(executable, empty, 0)))
"""
    values = said_in(machine, GRAPHS + code)

    assert values == {"off": 0, "on": 1, "state": [0], "empty": INVALID_VALUE}
    assert machine.books()[0].clients[0].launches == 0


#: The binding tells nothing about an update that failed.
UPDATES = """
class Info(ctypes.Structure):
    _fields_ = [("result", ctypes.c_int), ("node", ctypes.c_void_p), ("source", ctypes.c_void_p)]
def update(build):
    graph, info = new_graph(), Info()
    marked = build(graph)
    result = ctypes.CDLL("libcuda.so.1").cuGraphExecUpdate_v2(
        ctypes.c_void_p(int(executable)), ctypes.c_void_p(int(graph)), ctypes.byref(info))
    return [result, info.result, marked is not None and info.node == int(marked)]
one, two = check(cuda.cuMemAlloc(8)), check(cuda.cuMemAllocHost(8))
def copy_params(target):
    copy = cuda.CUDA_MEMCPY3D()
    types = cuda.CUmemorytype
    copy.srcMemoryType, copy.srcDevice = types.CU_MEMORYTYPE_DEVICE, one
    if target is two: copy.dstMemoryType, copy.dstHost = types.CU_MEMORYTYPE_HOST, two
    else: copy.dstMemoryType, copy.dstDevice = types.CU_MEMORYTYPE_DEVICE, target
    copy.WidthInBytes, copy.Height, copy.Depth = 4, 1, 1
    return copy
def chain(graph, kernel_ns=1_000_000, value=1, target=None, reverse=False):
    a = add_kernel(graph, kernel_ns=kernel_ns)
    b = add_fill(graph, one, value, [a])
    c = check(cuda.cuGraphAddMemcpyNode(graph, [b], 1, copy_params(target or two), context))
    return a, b, c
graph = new_graph()
chain(graph)
executable = instantiate(graph)
"""


def test_an_update_takes_the_parameters_of_a_graph_of_the_same_form(machine: Machine) -> None:
    code = """
good = update(lambda graph: chain(graph, kernel_ns=5_000_000, value=6) and None)
launch(executable); wait()
say(good=good, one=bytes_of(one, 4), two=(ctypes.c_ubyte * 1).from_address(int(two))[0])
"""
    values = said_in(machine, GRAPHS + UPDATES + code)

    assert values == {"good": [0, 0, False], "one": [6, 6, 6, 6], "two": 6}
    assert machine.books()[0].busy_ns >= 5_000_000


def test_an_update_tells_what_changed_too_much_and_changes_nothing(machine: Machine) -> None:
    code = """
def other_type(graph):
    a = add_kernel(graph)
    b = add_kernel(graph, [a])
    check(cuda.cuGraphAddMemcpyNode(graph, [b], 1, copy_params(two), context))
    return b
def more_nodes(graph):
    chain(graph); add_empty(graph)
def other_edges(graph):
    a, b, c = chain(graph)
    check(cuda.cuGraphAddDependencies(graph, [a], [c], None, 1))
    return c
def more_exits(graph):
    a, b, c = chain(graph)
    check(cuda.cuGraphRemoveDependencies(graph, [b], [c], None, 1))
    return c
def other_memory(graph): return chain(graph, kernel_ns=9_000_000, target=one)[2]
def cooperative(graph):
    node = chain(graph)[0]
    value = cuda.CUkernelNodeAttrValue()
    value.cooperative = 1
    check(cuda.cuGraphKernelNodeSetAttribute(
        node, cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE, value))
    return node
results = {f.__name__: update(f) for f in
           (other_type, more_nodes, other_edges, more_exits, other_memory, cooperative)}
launch(executable); wait()
say(**results)
"""
    values = said_in(machine, GRAPHS + UPDATES + code)

    assert values == {
        "other_type": [UPDATE_FAILURE, 3, True],
        "more_nodes": [UPDATE_FAILURE, 2, False],
        "other_edges": [UPDATE_FAILURE, 2, True],
        "more_exits": [UPDATE_FAILURE, 2, True],
        "other_memory": [UPDATE_FAILURE, 5, True],
        "cooperative": [UPDATE_FAILURE, 8, True],
    }
    assert machine.books()[0].clients[0].launches == 1
    assert machine.books()[0].busy_ns < 9_000_000
