"""Stream capture and graphs of the simulated driver."""

from libvgpu.sim import Machine
from support.sim.programs import said_in

BEGIN = """
Mode = cuda.CUstreamCaptureMode
open_context()
spinner = Spinner(1_000_000)
stream = spinner.stream
def begin(mode=Mode.CU_STREAM_CAPTURE_MODE_GLOBAL): check(cuda.cuStreamBeginCapture(stream, mode))
def end(): return check(cuda.cuStreamEndCapture(stream))
"""


def test_captured_work_runs_at_each_launch_only(machine: Machine) -> None:
    code = """
target = check(cuda.cuMemAlloc(4))
check(cuda.cuMemsetD8(target, 1, 4))
begin()
for _ in range(5): spinner.launch()
check(cuda.cuMemsetD8Async(target, 9, 4, stream))
graph = end()
def first():
    back = bytearray(4); check(cuda.cuMemcpyDtoH(back, target, 4)); return back[0]
before = first()
nodes = check(cuda.cuGraphGetNodes(graph))[1]
executable = check(cuda.cuGraphInstantiate(graph, 0))
for _ in range(3): check(cuda.cuGraphLaunch(executable, stream))
spinner.wait()
say(before=before, after=first(), nodes=nodes)
"""
    values = said_in(machine, BEGIN + code)
    (books,) = machine.books()

    assert values == {"before": 1, "after": 9, "nodes": 6}
    assert books.clients[0].launches == 15
    assert books.busy_ns >= 15_000_000


def test_waiting_for_a_capturing_stream_is_refused_and_spoils_the_capture(
    machine: Machine,
) -> None:
    code = """
begin()
wait = int(cuda.cuStreamSynchronize(stream)[0])
status = int(check(cuda.cuStreamIsCapturing(stream)))
say(wait=wait, status=status, end=int(cuda.cuStreamEndCapture(stream)[0]),
    then=int(cuda.cuStreamSynchronize(stream)[0]))
"""
    assert said_in(machine, BEGIN + code) == {"wait": 900, "status": 2, "end": 901, "then": 0}


def test_what_is_unsafe_beside_a_global_capture_is_refused_unless_relaxed(
    machine: Machine,
) -> None:
    code = """
begin()
before = check(cuda.cuThreadExchangeStreamCaptureMode(Mode.CU_STREAM_CAPTURE_MODE_RELAXED))
relaxed = int(cuda.cuMemAlloc(4096)[0])
check(cuda.cuThreadExchangeStreamCaptureMode(before))
good = int(check(cuda.cuStreamIsCapturing(stream)))
strict = int(cuda.cuMemAlloc(4096)[0])
say(before=int(before), relaxed=relaxed, good=good, strict=strict,
    end=int(cuda.cuStreamEndCapture(stream)[0]))
"""
    assert said_in(machine, BEGIN + code) == {
        "before": 0,
        "relaxed": 0,
        "good": 1,
        "strict": 900,
        "end": 901,
    }


def test_a_second_stream_joins_by_an_event(machine: Machine) -> None:
    code = """
other = Spinner(2_000_000)
fork, join = check(cuda.cuEventCreate(2)), check(cuda.cuEventCreate(2))
begin()
check(cuda.cuEventRecord(fork, stream))
check(cuda.cuStreamWaitEvent(other.stream, fork, 0))
joined = int(check(cuda.cuStreamIsCapturing(other.stream)))
other.launch()
query = int(cuda.cuEventQuery(fork)[0])
check(cuda.cuEventRecord(join, other.stream))
check(cuda.cuStreamWaitEvent(stream, join, 0))
nodes = check(cuda.cuGraphGetNodes(end()))[1]
say(joined=joined, nodes=nodes, query=query,
    after=int(check(cuda.cuStreamIsCapturing(other.stream))))
"""
    assert said_in(machine, BEGIN + code) == {"joined": 1, "nodes": 1, "query": 907, "after": 0}


def test_a_graph_by_nodes(machine: Machine) -> None:
    code = """
graph = check(cuda.cuGraphCreate(0))
params = cuda.CUDA_KERNEL_NODE_PARAMS()
params.func = spinner._function
params.gridDimX = params.gridDimY = params.gridDimZ = 1
params.blockDimX = params.blockDimY = params.blockDimZ = 1
params.kernelParams = ctypes.addressof(spinner._arguments)
node = check(cuda.cuGraphAddKernelNode(graph, [], 0, params))
executable = check(cuda.cuGraphInstantiate(graph, 0))
check(cuda.cuGraphLaunch(executable, stream))
spinner.wait()
say(nodes=check(cuda.cuGraphGetNodes(graph))[1])
"""
    values = said_in(machine, BEGIN + code)

    assert values == {"nodes": 1}
    assert machine.books()[0].busy_ns == 1_000_000
