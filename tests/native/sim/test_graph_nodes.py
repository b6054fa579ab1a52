"""Graphs of the simulated driver: nodes of every kind, and what their launches do."""

from libvgpu.sim import Machine
from support.sim.graphs import GRAPHS
from support.sim.programs import run, said_in

INVALID_VALUE, NOT_SUPPORTED, LOSSY_QUERY = 1, 801, 402


def test_nodes_and_edges_are_told_as_they_were_made(machine: Machine) -> None:
    code = """
graph = new_graph()
a = add_kernel(graph)
b, c = add_kernel(graph, [a]), add_empty(graph, [a])
d = add_kernel(graph, [b, c])
other = add_empty(new_graph())
def names(answer, count): return ["abcd"[[int(n) for n in (a, b, c, d)].index(int(x))]
                                  for x in answer[0]]
same(edges_of(graph), [[0, 1], [0, 2], [1, 3], [2, 3]])
same(types_of(graph), [0, 0, 5, 0])
same(check(cuda.cuGraphGetRootNodes(graph))[1], 1)
same(names(check(cuda.cuGraphNodeGetDependencies(d, 2)), 2), ["b", "c"])
same(names(check(cuda.cuGraphNodeGetDependentNodes(a, 2)), 2), ["b", "c"])
same(code(cuda.cuGraphAddDependencies(graph, [a], [b], None, 1)), INVALID_VALUE)
same(code(cuda.cuGraphAddDependencies(graph, [other], [b], None, 1)), INVALID_VALUE)
same(code(cuda.cuGraphAddEmptyNode(graph, [a, a], 2)), INVALID_VALUE)
same(code(cuda.cuGraphAddDependencies(graph, [b], [c], None, 1)), 0)
same(edges_of(graph), [[0, 1], [0, 2], [1, 2], [1, 3], [2, 3]])
same(code(cuda.cuGraphRemoveDependencies(graph, [a], [b], None, 1)), 0)
same(code(cuda.cuGraphRemoveDependencies(graph, [a], [b], None, 1)), INVALID_VALUE)
same(code(cuda.cuGraphDestroyNode(c)), 0)
same(edges_of(graph), [[1, 2]])
"""
    run(machine, GRAPHS + code)


def test_an_edge_with_data_is_not_told_without_it(machine: Machine) -> None:
    code = """
graph = new_graph()
a, b, empty = add_kernel(graph), add_kernel(graph), add_empty(graph)
data = cuda.CUgraphEdgeData()
data.from_port, data.type = b"\\x01"[0], b"\\x01"[0]
added = code(cuda.cuGraphAddDependencies(graph, [a], [b], [data], 1))
to_empty = code(cuda.cuGraphAddDependencies(graph, [a], [empty], [data], 1))
old = ctypes.CDLL("libcuda.so.1").cuGraphNodeGetDependencies
found, count = (ctypes.c_void_p * 1)(), ctypes.c_size_t(1)
lossy = old(ctypes.c_void_p(int(b)), found, ctypes.byref(count))
told = check(cuda.cuGraphNodeGetDependencies(b, 1))
say(added=added, to_empty=to_empty, lossy=lossy, port=told[1][0].from_port)
"""
    values = said_in(machine, GRAPHS + code)

    assert values == {"added": 0, "to_empty": INVALID_VALUE, "lossy": LOSSY_QUERY, "port": 1}


def test_a_cycle_is_found_when_the_graph_is_instantiated(machine: Machine) -> None:
    code = """
graph = new_graph()
a, b, c = add_empty(graph), add_empty(graph), add_empty(graph)
check(cuda.cuGraphAddDependencies(graph, [b, c], [c, b], None, 2))
params = cuda.CUDA_GRAPH_INSTANTIATE_PARAMS()
result = code(cuda.cuGraphInstantiateWithParams(graph, params))
say(result=result, why=int(params.result_out),
    culprit=int(params.hErrNode_out) in (int(b), int(c)))
"""
    assert said_in(machine, GRAPHS + code) == {"result": INVALID_VALUE, "why": 2, "culprit": True}


def test_a_graph_of_kernels_runs_as_one_operation_with_all_their_time(machine: Machine) -> None:
    code = """
graph = new_graph()
first = add_kernel(graph)
for each in range(3): add_kernel(graph, [first], 2_000_000)
executable = instantiate(graph)
launch(executable); wait(); say()
"""
    said_in(machine, GRAPHS + code)
    (books,) = machine.books()

    assert books.busy_ns == 7_000_000
    assert books.clients[0].launches == 4


def test_kernel_arguments_are_copied_and_told(machine: Machine) -> None:
    code = """
graph = new_graph()
node = add_kernel(graph, kernel_ns=3_000_000)
kept[-1][0].value = 50_000_000   # too late to change anything
params = check(cuda.cuGraphKernelNodeGetParams(node))
pointer = ctypes.cast(int(params.kernelParams), ctypes.POINTER(ctypes.c_void_p))[0]
same(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_ulonglong))[0], 3_000_000)
same(int(params.func) == int(spinner._function), True)
executable = instantiate(graph)
check(cuda.cuGraphKernelNodeSetParams(node, kernel_params(9_000_000)))
launch(executable); wait()
"""
    run(machine, GRAPHS + code)
    assert machine.books()[0].busy_ns == 3_000_000


def test_kernel_attributes_are_kept_and_copied(machine: Machine) -> None:
    code = """
graph = new_graph()
a, b = add_kernel(graph), add_kernel(graph)
Id = cuda.CUlaunchAttributeID
value = cuda.CUkernelNodeAttrValue()
value.priority = -3
check(cuda.cuGraphKernelNodeSetAttribute(a, Id.CU_LAUNCH_ATTRIBUTE_PRIORITY, value))
def priority(node):
    return check(cuda.cuGraphKernelNodeGetAttribute(
        node, Id.CU_LAUNCH_ATTRIBUTE_PRIORITY)).priority
before = priority(b)
check(cuda.cuGraphKernelNodeCopyAttributes(b, a))
clone = check(cuda.cuGraphClone(graph))
say(before=before, after=priority(b),
    cloned=priority(check(cuda.cuGraphNodeFindInClone(b, clone))))
"""
    assert said_in(machine, GRAPHS + code) == {"before": 0, "after": -3, "cloned": -3}


def test_nodes_run_behind_all_their_dependencies(machine: Machine) -> None:
    code = """
order = []
graph = new_graph()
d, c, b, a = [add_host(graph, lambda _, name=name: order.append(name)) for name in "dcba"]
check(cuda.cuGraphAddDependencies(graph, [a, a, b, c], [b, c, d, d], None, 4))
launch(instantiate(graph)); wait()
say(first=order[0], last=order[3:], all=sorted(order))
"""
    assert said_in(machine, GRAPHS + code) == {
        "first": "a",
        "last": ["d"],
        "all": ["a", "b", "c", "d"],
    }


def test_fills_and_copies_move_bytes_in_the_order_of_their_edges(machine: Machine) -> None:
    code = """
one, two = check(cuda.cuMemAlloc(64)), check(cuda.cuMemAlloc(64))
check(cuda.cuMemsetD8(one, 0, 64)); check(cuda.cuMemsetD8(two, 0, 64))
graph = new_graph()
copy = cuda.CUDA_MEMCPY3D()
copy.srcMemoryType = copy.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
copy.srcDevice, copy.dstDevice = one, two
copy.srcPitch = copy.dstPitch = 8
copy.srcY = 1
copy.WidthInBytes, copy.Height, copy.Depth = 4, 2, 1
copied = check(cuda.cuGraphAddMemcpyNode(graph, [], 0, copy, context))
rows = add_fill(graph, one, 7, width=3, height=3, pitch=8)
check(cuda.cuGraphAddDependencies(graph, [rows], [copied], None, 1))
untouched = bytes_of(two, 16)
launch(instantiate(graph)); wait()
beyond = cuda.CUDA_MEMCPY3D()
for name in ("srcMemoryType", "dstMemoryType", "srcDevice", "dstDevice"):
    setattr(beyond, name, getattr(copy, name))
beyond.WidthInBytes, beyond.Height, beyond.Depth = 65, 1, 1
say(untouched=sum(untouched), one=bytes_of(one, 24), two=bytes_of(two, 16),
    beyond=code(cuda.cuGraphAddMemcpyNode(graph, [], 0, beyond, context)),
    height=check(cuda.cuGraphMemsetNodeGetParams(rows)).height)
"""
    values = said_in(machine, GRAPHS + code)

    row = [7, 7, 7, 0, 0, 0, 0, 0]
    assert values == {
        "untouched": 0,
        "one": row * 3,
        "two": row * 2,
        "beyond": INVALID_VALUE,
        "height": 3,
    }


def test_host_functions_come_between_the_work_around_them(machine: Machine) -> None:
    code = """
target = check(cuda.cuMemAlloc(4))
source = check(cuda.cuMemAllocHost(4))
order = []
ctypes.memset(int(source), 1, 4)
def write(_): order.append("write"); ctypes.memset(int(source), 5, 4)
def read(_): order.append("read"); order.append((ctypes.c_ubyte * 1).from_address(int(target))[0])
graph = new_graph()
a = add_host(graph, write)
copy = cuda.CUDA_MEMCPY3D()
copy.srcMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_HOST
copy.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
copy.srcHost, copy.dstDevice = source, target
copy.WidthInBytes, copy.Height, copy.Depth = 4, 1, 1
b = check(cuda.cuGraphAddMemcpyNode(graph, [a], 1, copy, context))
add_host(graph, read, [b])
launch(instantiate(graph)); wait()
say(order=order)
"""
    assert said_in(machine, GRAPHS + code) == {"order": ["write", "read", 5]}


def test_child_graphs_are_copied_or_moved_and_run(machine: Machine) -> None:
    code = """
child = new_graph()
add_kernel(child, kernel_ns=2_000_000)
graph = new_graph()
node = check(cuda.cuGraphAddChildGraphNode(graph, [], 0, child))
add_kernel(child)                        # the copy does not get this one
inner = check(cuda.cuGraphChildGraphNodeGetGraph(node))
params = cuda.CUgraphNodeParams()
params.type = Type.CU_GRAPH_NODE_TYPE_GRAPH
params.graph.graph = child
params.graph.ownership = cuda.CUgraphChildGraphNodeOwnership.CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE
moved = check(cuda.cuGraphAddNode(graph, [node], None, 1, params))
launch(instantiate(graph)); wait()
same(len(nodes_of(inner)), 1)
same(code(cuda.cuGraphDestroy(inner)), INVALID_VALUE)
same(int(check(cuda.cuGraphChildGraphNodeGetGraph(moved))) == int(child), True)
same(code(cuda.cuGraphAddNode(graph, [], None, 0, params)), INVALID_VALUE)
same(types_of(graph), [4, 4])
"""
    run(machine, GRAPHS + code)
    assert machine.books()[0].busy_ns == 5_000_000


def test_event_nodes_record_and_wait_outside_the_graph(machine: Machine) -> None:
    code = """
start, stop = check(cuda.cuEventCreate(0)), check(cuda.cuEventCreate(0))
graph = new_graph()
a = check(cuda.cuGraphAddEventRecordNode(graph, [], 0, start))
b = add_kernel(graph, [a], 4_000_000)
c = check(cuda.cuGraphAddEventRecordNode(graph, [b], 1, stop))
waiting = check(cuda.cuGraphAddEventWaitNode(graph, [c], 1, start))
executable = instantiate(graph)
launch(executable); wait()
say(apart=check(cuda.cuEventElapsedTime(start, stop)) >= 4,
    told=int(check(cuda.cuGraphEventRecordNodeGetEvent(c))) == int(stop),
    other_kind=code(cuda.cuGraphEventWaitNodeGetEvent(c)))
"""
    assert said_in(machine, GRAPHS + code) == {
        "apart": True,
        "told": True,
        "other_kind": INVALID_VALUE,
    }


def test_memory_operations_write_and_wait_for_words(machine: Machine) -> None:
    code = """
import threading
words = check(cuda.cuMemAllocHost(16))
ctypes.memset(int(words), 0, 16)
seen = []
Op = cuda.CUstreamBatchMemOpType
wait_op, write_op = cuda.CUstreamBatchMemOpParams(), cuda.CUstreamBatchMemOpParams()
wait_op.operation = wait_op.waitValue.operation = Op.CU_STREAM_MEM_OP_WAIT_VALUE_32
wait_op.waitValue.address, wait_op.waitValue.value = int(words), 3
write_op.operation = write_op.writeValue.operation = Op.CU_STREAM_MEM_OP_WRITE_VALUE_64
write_op.writeValue.address, write_op.writeValue.value64 = int(words) + 8, 1 << 40
params = cuda.CUDA_BATCH_MEM_OP_NODE_PARAMS()
params.ctx, params.count, params.paramArray = context, 2, [wait_op, write_op]
graph = new_graph()
batch = check(cuda.cuGraphAddBatchMemOpNode(graph, [], 0, params))
written = ctypes.c_uint64.from_address(int(words) + 8)
add_host(graph, lambda _: seen.append(written.value), [batch])
launch(instantiate(graph))
query = {code(cuda.cuStreamQuery(stream)) for _ in range(5000)}
before = written.value
ctypes.c_uint32.from_address(int(words)).value = 3
wait()
wait_op.waitValue.address = 12345 * 4
params.paramArray = [wait_op, write_op]
say(query=list(query), before=before, seen=seen,
    foreign=code(cuda.cuGraphAddBatchMemOpNode(graph, [], 0, params)))
"""
    values = said_in(machine, GRAPHS + code)

    assert values == {"query": [600], "before": 0, "seen": [1 << 40], "foreign": INVALID_VALUE}


def test_the_default_value_of_a_condition_decides(machine: Machine) -> None:
    code = """
Cond = cuda.CUgraphConditionalNodeType
def conditional(graph, kind, size, value, flags=1):
    handle = check(cuda.cuGraphConditionalHandleCreate(graph, context, value, flags))
    params = cuda.CUgraphNodeParams()
    params.type = Type.CU_GRAPH_NODE_TYPE_CONDITIONAL
    params.conditional.handle, params.conditional.ctx = handle, context
    params.conditional.type, params.conditional.size = kind, size
    check(cuda.cuGraphAddNode(graph, [], None, 0, params))
    return params.conditional.phGraph_out
def took(kind, size, value, flags=1):
    graph = new_graph()
    for i, body in enumerate(conditional(graph, kind, size, value, flags)):
        add_fill(body, target, 10 + i)
    check(cuda.cuMemsetD8(target, 0, 4))
    launch(instantiate(graph)); wait()
    return bytes_of(target, 1)[0]
target = check(cuda.cuMemAlloc(4))
If, While, Switch = (Cond.CU_GRAPH_COND_TYPE_IF, Cond.CU_GRAPH_COND_TYPE_WHILE,
                     Cond.CU_GRAPH_COND_TYPE_SWITCH)
graph = new_graph()
(body,) = conditional(graph, If, 1, 1)
handle = check(cuda.cuGraphConditionalHandleCreate(graph, context, 1, 1))
params = cuda.CUDA_GRAPH_INSTANTIATE_PARAMS()
same(code(cuda.cuGraphInstantiateWithParams(graph, params)), INVALID_VALUE)
same(took(If, 2, 5), 10)
same(took(If, 2, 0), 11)
same(took(If, 2, 5, 0), 11)
same(took(While, 1, 1), 10)
same(took(While, 1, 0), 0)
same(took(Switch, 3, 1), 11)
same(took(Switch, 3, 3), 0)
same(code(cuda.cuGraphAddHostNode(body, [], 0, host_params(lambda _: None))), INVALID_VALUE)
same(code(cuda.cuGraphClone(graph)), INVALID_VALUE)
same(int(params.result_out), 5)
"""
    run(machine, GRAPHS + code)


def test_external_semaphores_are_not_modelled(machine: Machine) -> None:
    code = """
params = cuda.CUgraphNodeParams()
params.type = Type.CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL
say(code=code(cuda.cuGraphAddNode(new_graph(), [], None, 0, params)))
"""
    assert said_in(machine, GRAPHS + code) == {"code": NOT_SUPPORTED}


def test_a_clone_is_a_graph_of_its_own(machine: Machine) -> None:
    code = """
graph = new_graph()
a = add_kernel(graph)
b = add_kernel(graph, [a])
clone = check(cuda.cuGraphClone(graph))
found = check(cuda.cuGraphNodeFindInClone(b, clone))
def argument(node):
    params = int(check(cuda.cuGraphKernelNodeGetParams(node)).kernelParams)
    return ctypes.cast(params, ctypes.POINTER(ctypes.c_void_p))[0]
one, other = argument(b), argument(found)
same(one != other and ctypes.c_ulonglong.from_address(other).value == 1_000_000, True)
check(cuda.cuGraphDestroyNode(found))
same(int(found) != int(b), True)
same(edges_of(graph), [[0, 1]])
same(len(nodes_of(clone)), 1)
same(code(cuda.cuGraphNodeFindInClone(b, clone)), INVALID_VALUE)
same(code(cuda.cuGraphNodeFindInClone(b, graph)), INVALID_VALUE)
"""
    run(machine, GRAPHS + code)


def test_a_graph_is_printed_for_graphviz(machine: Machine) -> None:
    code = """
import tempfile
graph = new_graph()
a = add_kernel(graph)
add_empty(graph, [a])
with tempfile.NamedTemporaryFile() as file:
    check(cuda.cuGraphDebugDotPrint(graph, file.name.encode(), 0))
    text = open(file.name).read()
say(kernel="spin_ns" in text, edges=text.count("->"), graph=text.startswith("digraph"),
    closed=text.count("{") == text.count("}"),
    nowhere=code(cuda.cuGraphDebugDotPrint(graph, b"/nonexistent/file", 0)))
"""
    values = said_in(machine, GRAPHS + code)

    assert values == {"kernel": True, "edges": 1, "graph": True, "closed": True, "nowhere": 304}


def test_a_user_object_lives_as_long_as_a_graph_or_a_launch_holds_it(machine: Machine) -> None:
    code = """
import threading
gone = threading.Event()
destroy = CALL(lambda _: gone.set())
flags = cuda.CUuserObject_flags.CU_USER_OBJECT_NO_DESTRUCTOR_SYNC
object_ = check(cuda.cuUserObjectCreate(0, ctypes.cast(destroy, ctypes.c_void_p).value, 2, flags))
graph, held, release = new_graph(), threading.Event(), threading.Event()
move = cuda.CUuserObjectRetain_flags.CU_GRAPH_USER_OBJECT_MOVE
check(cuda.cuGraphRetainUserObject(graph, object_, 1, move))
too_many = code(cuda.cuGraphReleaseUserObject(graph, object_, 2))
add_host(graph, lambda _: (held.set(), release.wait()))
check(cuda.cuUserObjectRelease(object_, 1))
executable = instantiate(graph)
launch(executable)
held.wait()
check(cuda.cuGraphDestroy(graph)); check(cuda.cuGraphExecDestroy(executable))
fence, passed = CALL(lambda _: passed.set()), threading.Event()
check(cuda.cuUserObjectRelease(check(cuda.cuUserObjectCreate(
    0, ctypes.cast(fence, ctypes.c_void_p).value, 1, flags)), 1))
passed.wait()   # by now a destructor that was called before has run
during = gone.is_set()
release.set()
say(too_many=too_many, during=during, after=gone.wait(60))
"""
    assert said_in(machine, GRAPHS + code) == {
        "too_many": INVALID_VALUE,
        "during": False,
        "after": True,
    }
