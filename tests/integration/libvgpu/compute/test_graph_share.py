"""Graphs of every make are held to the cap, also while they change (simulated figures)."""

import time

import pytest

from libvgpu.sim import Machine
from support.lines import expect
from support.shim.slices import SliceOf
from support.sim.graphs import GRAPHS
from support.sim.programs import PRELUDE

GIB = 1 << 30
CAP_PERCENT = 30
SETTLE_SECONDS = 0.6
WINDOW_SECONDS = 1.2
POINTS = 1

#: What makes `executable`, and what is done before each launch of it.
PLAIN = "executable, change = instantiate(graph), lambda: None"
MAKES = {
    "nested": """
for _ in range(4): add_kernel(graph, kernel_ns=500_000)
outer = new_graph()
check(cuda.cuGraphAddChildGraphNode(outer, [], 0, graph))
add_kernel(outer, kernel_ns=500_000)
graph = outer
"""
    + PLAIN,
    "conditional": """
handle = check(cuda.cuGraphConditionalHandleCreate(graph, context, 1, 1))
params = cuda.CUgraphNodeParams()
params.type = Type.CU_GRAPH_NODE_TYPE_CONDITIONAL
params.conditional.handle, params.conditional.ctx = handle, context
params.conditional.type = cuda.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_IF
params.conditional.size = 1
check(cuda.cuGraphAddNode(graph, [], None, 0, params))
add_kernel(params.conditional.phGraph_out[0], kernel_ns=2_000_000)
"""
    + PLAIN,
    # As a decoder does for every token: the same executable, never for long as it was. Ten launches
    # are 35 ms at the cap, so what the window cuts off at its edges is little.
    "nodes set anew": """
node, launches = add_kernel(graph, kernel_ns=100_000), 0
executable = instantiate(graph)
def change():
    global launches
    launches += 1
    length = (100_000, 2_000_000)[launches // 5 % 2]
    check(cuda.cuGraphExecKernelNodeSetParams(executable, node, kernel_params(length)))
    del kept[:-50]
""",
    "updated whole": """
add_kernel(graph, kernel_ns=100_000)
longer = new_graph()
add_kernel(longer, kernel_ns=2_000_000)
executable, launches = instantiate(graph), 0
def change():
    global launches
    launches += 1
    if launches % 5 == 0:
        check(cuda.cuGraphExecUpdate(executable, (graph, longer)[launches // 5 % 2]))
""",
}
LAUNCHES = """
print("ready", flush=True)
end = time.monotonic() + 30
while time.monotonic() < end:
    change()
    launch(executable)
"""

pytestmark = pytest.mark.virtual


@pytest.mark.parametrize("make", MAKES)
def test_graphs_are_held_to_the_cap(machine: Machine, slice_of: SliceOf, make: str) -> None:
    part = slice_of(machine, memory_bytes=GIB, core_percent=CAP_PERCENT)
    process = part.start(PRELUDE + GRAPHS + "graph = new_graph()\n" + MAKES[make] + LAUNCHES)
    expect(process)
    time.sleep(SETTLE_SECONDS)

    first = machine.books()[0]
    time.sleep(WINDOW_SECONDS)
    last = machine.books()[0]

    share = 100 * (last.busy_ns - first.busy_ns) / (last.clock_ns - first.clock_ns)
    assert share == pytest.approx(CAP_PERCENT, abs=POINTS)
