"""Stream capture under a cap: a graph holds the program's launches and nothing of ours, whichever
name began it, and launching it is held to the cap."""

import pytest

from libvgpu.sim import Machine
from support import IS_LONG
from support.lines import next_line
from support.shim.slices import SliceOf

GIB = 1 << 30
CAP_PERCENT = 50
KERNELS = 5
# Known kernels are leased ahead of their launch: none of those may count or hold in the capture.
LAUNCHES_BEFORE = 100
RUN_SECONDS = 2.5 if IS_LONG else 1.5

CAPTURE = """
import sys
from support.shim.cuda_client import *
name, kernels, before, seconds = sys.argv[1], *map(float, sys.argv[2:])
open_context()
spinner = Spinner(200_000)
def launch(blocks):
    check(driver.cuLaunchKernel(spinner._function, blocks, 1, 1, 1, 1, 1, 0, spinner.stream,
                                ctypes.addressof(spinner._arguments), 0))
for _ in range(int(before)): launch(1)

begin = getattr(ctypes.CDLL("libcuda.so.1"), name)  # the binding knows the newest name only
stream = ctypes.c_void_p(int(spinner.stream))
assert (begin(stream) if name == "cuStreamBeginCapture" else begin(stream, 0)) == 0
for kind in range(int(kernels)): launch(1 + 64 * kind)
graph = check(driver.cuStreamEndCapture(spinner.stream))
nodes = check(driver.cuGraphGetNodes(graph))[1]

executable = check(driver.cuGraphInstantiate(graph, 0))
spinner.wait()
start, graphs = time.monotonic(), 0
while time.monotonic() - start < seconds:
    check(driver.cuGraphLaunch(executable, spinner.stream))
    graphs += 1
spinner.wait()
gpu_seconds = graphs * kernels * spinner.kernel_ns / 1e9
print(nodes, graphs, 100 * gpu_seconds / (time.monotonic() - start), flush=True)
sys.stdin.readline()
"""

pytestmark = pytest.mark.virtual


@pytest.mark.parametrize("name", ["cuStreamBeginCapture", "cuStreamBeginCapture_v2"])
def test_a_captured_graph_is_the_programs_and_is_held(
    machine: Machine, slice_of: SliceOf, name: str
) -> None:
    part = slice_of(machine, memory_bytes=GIB, core_percent=CAP_PERCENT)

    process = part.start(CAPTURE, name, str(KERNELS), str(LAUNCHES_BEFORE), str(RUN_SECONDS))
    nodes, graphs, share = map(float, next_line(process).split())

    assert nodes == KERNELS
    assert share == pytest.approx(CAP_PERCENT, abs=5)
    told = part.usage().devices[0]
    assert told.launches == LAUNCHES_BEFORE + graphs  # what was captured did not run then
    assert told.held_ns > 0
