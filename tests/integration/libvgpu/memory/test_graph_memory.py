"""Memory nodes of graphs under a slice: charged for what the GPU keeps for them."""

from pathlib import Path

import pytest

from libvgpu.sim import Machine
from support.shim.slices import Slice, SliceOf
from support.sim.measured import measured_machine

MIB = 1 << 20
GIB = 1 << 30
LIMIT = 64 * MIB
START = """
from support.shim.cuda_client import *
from support.shim.both_books import agree, device_bytes, ledger_bytes
open_context()
stream = check(driver.cuStreamCreate(0))
def add_alloc(graph, bytes, after=()):
    params = driver.CUDA_MEM_ALLOC_NODE_PARAMS()
    params.poolProps.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    params.poolProps.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    params.poolProps.location.id = 0
    params.bytesize = bytes
    node = check(driver.cuGraphAddMemAllocNode(graph, list(after), len(after), params))
    return node, int(params.dptr)  # the value: the object points into `params`, which ends here
def graph_of(bytes, free=True):
    graph = check(driver.cuGraphCreate(0))
    node, address = add_alloc(graph, bytes)
    if free:
        check(driver.cuGraphAddMemFreeNode(graph, [node], 1, address))
    return graph, address
def instantiate(graph, flags=0):
    return check(driver.cuGraphInstantiate(graph, flags))
def launch(executable):
    return int(driver.cuGraphLaunch(executable, stream)[0])
def wait():
    check(driver.cuStreamSynchronize(stream))
"""


@pytest.fixture
def part(machine: Machine, slice_of: SliceOf) -> Slice:
    return slice_of(machine, memory_bytes=LIMIT)


def test_memory_of_a_graph_is_charged_from_its_launch_until_it_is_trimmed(part: Slice) -> None:
    code = f"""
graph, _ = graph_of(10 * MIB)
executable = instantiate(graph)
print(agree())
print(launch(executable), agree())
wait()
print(agree())
check(driver.cuDeviceGraphMemTrim(0))
print(agree())
large, _ = graph_of({LIMIT} + 1)
print(launch(instantiate(large)), agree())
exact, _ = graph_of({LIMIT})
executable = instantiate(exact)
print(launch(executable), agree())
wait()
print(int(driver.cuMemAlloc({LIMIT})[0]), agree())  # what is idle makes room
"""
    words = part.run(START + code)

    ten, full = str(10 * MIB), str(LIMIT)
    assert words == ["0", "0", ten, ten, "0", "2", "0", "0", full, "0", full]


def test_a_graph_that_ran_goes_on_in_a_full_slice(part: Slice) -> None:
    code = """
graph = check(driver.cuGraphCreate(0))
node, address = add_alloc(graph, 20 * MIB)
node = check(driver.cuGraphAddMemFreeNode(graph, [node], 1, address))
node, address = add_alloc(graph, 12 * MIB, [node])
node = check(driver.cuGraphAddMemFreeNode(graph, [node], 1, address))
executable = instantiate(graph)
print(launch(executable), agree())         # one on top of the other
wait()
check(driver.cuMemAlloc(44 * MIB))
print(launch(executable), agree())
wait()
"""
    assert part.run(START + code) == ["0", str(20 * MIB), "0", str(LIMIT)]


def test_memory_left_allocated_uploads_and_child_graphs_are_charged(part: Slice) -> None:
    code = """
graph, address = graph_of(6 * MIB, free=False)
executable = instantiate(graph)
print(launch(executable), agree())
wait()
check(driver.cuMemFree(address))
check(driver.cuDeviceGraphMemTrim(0))
print(agree())
graph, _ = graph_of(8 * MIB)
executable = instantiate(graph)
check(driver.cuGraphUpload(executable, stream))
print(agree())
wait()
check(driver.cuGraphExecDestroy(executable))
check(driver.cuDeviceGraphMemTrim(0))
flag = driver.CUgraphInstantiate_flags.CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD
params = driver.CUDA_GRAPH_INSTANTIATE_PARAMS()
params.flags = int(flag)
params.hUploadStream = stream
check(driver.cuGraphInstantiateWithParams(graph, params))
print(agree())
"""
    assert part.run(START + code) == ["0", str(6 * MIB), "0", str(8 * MIB), str(8 * MIB)]


def test_a_captured_allocation_is_charged_when_its_graph_is_launched(part: Slice) -> None:
    code = f"""
mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
def captured(bytes):
    check(driver.cuStreamBeginCapture(stream, mode))
    address = check(driver.cuMemAllocAsync(bytes, stream))
    check(driver.cuMemFreeAsync(address, stream))
    return instantiate(check(driver.cuStreamEndCapture(stream)))
print(launch(captured(16 * MIB)), agree())
wait()
print(launch(captured({LIMIT} + 512)), agree())
"""
    assert part.run(START + code) == ["0", str(16 * MIB), "2", "0"]


LONG = """
import ctypes
module = check(driver.cuModuleLoadData(SPIN_PTX))
spin = check(driver.cuModuleGetFunction(module, b"spin_ns"))
argument = ctypes.c_ulonglong(150_000_000)
arguments = (ctypes.c_void_p * 1)(ctypes.addressof(argument))
def long_graph_of(bytes):
    graph = check(driver.cuGraphCreate(0))
    node, address = add_alloc(graph, bytes)
    params = driver.CUDA_KERNEL_NODE_PARAMS()
    params.func = spin
    params.gridDimX = params.gridDimY = params.gridDimZ = 1
    params.blockDimX = params.blockDimY = params.blockDimZ = 1
    params.kernelParams = ctypes.addressof(arguments)
    kernel = check(driver.cuGraphAddKernelNode(graph, [node], 1, params))
    check(driver.cuGraphAddMemFreeNode(graph, [kernel], 1, address))
    return graph
other = check(driver.cuStreamCreate(1))
def launch_on(executable, where):
    return int(driver.cuGraphLaunch(executable, where)[0])
"""


def test_a_graph_is_launched_again_before_it_is_done_in_a_full_slice(part: Slice) -> None:
    code = f"""
executable = instantiate(long_graph_of(40 * MIB))
check(driver.cuMemAlloc({LIMIT} - 40 * MIB))
print(*(launch(executable) for _ in range(3)), agree())
wait()
print(launch(executable), agree())
wait()
"""
    assert part.run(START + LONG + code) == ["0", "0", "0", str(LIMIT), "0", str(LIMIT)]


def test_memory_that_another_graph_was_given_is_reserved_anew(
    machine: Machine, part: Slice
) -> None:
    code = """
first, second = (instantiate(long_graph_of(40 * MIB)) for _ in range(2))
print(launch_on(first, stream))
wait()
print(launch_on(second, other), agree())      # in what the first one left
print(launch_on(first, stream), agree())      # which would need as much again
check(driver.cuStreamSynchronize(other))
print(launch_on(first, stream), agree())
wait()
check(driver.cuDeviceGraphMemTrim(0))
check(driver.cuMemAlloc(30 * MIB))
print(launch_on(first, stream), agree())      # it was trimmed
"""
    words = part.run(START + LONG + code)

    piece = str(40 * MIB)
    assert words == ["0", "0", piece, "2", piece, "0", piece, "2", str(30 * MIB)]
    assert machine.books()[0].memory_peak_bytes <= LIMIT


def test_memory_that_made_room_is_reserved_anew(machine: Machine, part: Slice) -> None:
    code = """
executable = instantiate(graph_of(40 * MIB)[0])
print(launch(executable))
wait()
plain = check(driver.cuMemAlloc(40 * MIB))    # what the graph kept is trimmed for it
print(launch(executable), agree())
check(driver.cuMemFree(plain))
print(launch(executable), agree())
wait()
"""
    words = part.run(START + code)

    piece = str(40 * MIB)
    assert words == ["0", "2", piece, "0", piece]
    assert machine.books()[0].memory_peak_bytes <= LIMIT


def test_an_upload_takes_what_the_launch_needs(machine: Machine, part: Slice) -> None:
    code = """
graph = check(driver.cuGraphCreate(0))
node, address = add_alloc(graph, 20 * MIB)
freed = check(driver.cuGraphAddMemFreeNode(graph, [node], 1, address))
add_alloc(graph, 20 * MIB, [freed])               # outlives the launch
executable = instantiate(graph)
check(driver.cuGraphUpload(executable, stream))
check(driver.cuStreamSynchronize(stream))
print(agree())
check(driver.cuMemAlloc(24 * MIB))
print(launch(executable), agree())
"""
    words = part.run(START + code)

    assert words == [str(40 * MIB), "0", str(LIMIT)]
    assert machine.books()[0].memory_peak_bytes <= LIMIT


def test_a_graph_needs_what_is_alive_at_one_time(
    machine: Machine, slice_of: SliceOf, tmp_path: Path
) -> None:
    for each in (machine, measured_machine(tmp_path)):
        part = slice_of(each, memory_bytes=4 * GIB)
        refused = "0" if each is machine else "2"  # on the other one a context takes its part

        words = part.run(
            START
            + f"""
def chain(count, bytes):
    graph, last = check(driver.cuGraphCreate(0)), []
    for _ in range(count):
        node, address = add_alloc(graph, bytes, last)
        last = [check(driver.cuGraphAddMemFreeNode(graph, [node], 1, address))]
    return graph
check(driver.cuCtxSynchronize())              # what the stream takes is charged
before = ledger_bytes()
print(launch(instantiate(chain(100, 64 * MIB))), ledger_bytes() - before)
wait()
def branches(freed, left):                    # no edge between them: all may be alive
    graph = check(driver.cuGraphCreate(0))
    for _ in range(freed):
        node, address = add_alloc(graph, {GIB})
        check(driver.cuGraphAddMemFreeNode(graph, [node], 1, address))
    for _ in range(left):
        add_alloc(graph, {GIB})
    return graph
print(launch(instantiate(branches(3, 0))))
wait()
print(launch(instantiate(branches(3, 2))), launch(instantiate(branches(4, 0))))
wait()
check(driver.cuDeviceGraphMemTrim(0))
print(ledger_bytes() == before)
print(launch(instantiate(chain(2, 5 * {GIB}))))
print(ledger_bytes() <= 4 * {GIB})
"""
        )

        assert words == ["0", str(64 * MIB), "0", "2", refused, "True", "2", "True"]
        assert each.books()[0].memory_peak_bytes <= 4 * GIB


def test_branches_that_may_run_together_are_counted_together(part: Slice) -> None:
    code = """
def pair(joined):
    graph = check(driver.cuGraphCreate(0))
    node, address = add_alloc(graph, 40 * MIB)
    freed = check(driver.cuGraphAddMemFreeNode(graph, [node], 1, address))
    empty = []
    for _ in range(4):                        # the second one is made late in any case
        empty = [check(driver.cuGraphAddEmptyNode(graph, empty, len(empty)))]
    node, address = add_alloc(graph, 30 * MIB, [*empty, freed] if joined else empty)
    check(driver.cuGraphAddMemFreeNode(graph, [node], 1, address))
    return graph
print(launch(instantiate(pair(False))), agree(), launch(instantiate(pair(True))), agree())
"""
    assert part.run(START + code) == ["2", "0", "0", str(40 * MIB)]


def test_a_graph_is_reserved_the_blocks_that_it_takes(slice_of: SliceOf, tmp_path: Path) -> None:
    machine = measured_machine(tmp_path)
    context_bytes = machine.devices[0].profile.context_bytes
    part = slice_of(machine, memory_bytes=context_bytes + 3 * MIB)

    code = """
print(launch(instantiate(graph_of(5 * MIB // 2)[0])))   # would take 4 MiB
print(launch(instantiate(graph_of(2 * MIB)[0])))
"""
    assert part.run(START + code) == ["2", "0"]


RANDOM = """
import random
def random_graph(dice):
    graph, last, live = check(driver.cuGraphCreate(0)), [[], []], []
    for _ in range(dice.randrange(1, 12)):
        branch = dice.randrange(2)
        if live and dice.random() < 0.5:
            node, address = live.pop(dice.randrange(len(live)))
            after = list({int(each): each for each in [node, *last[branch]]}.values())
            last[branch] = [check(driver.cuGraphAddMemFreeNode(graph, after, len(after), address))]
        else:
            node, address = add_alloc(graph, dice.randrange(1, 12 * MIB), last[branch])
            last[branch] = [node]
            live.append((node, address))
        if dice.random() < 0.2:               # the branches meet
            last = [[*last[0], *last[1]]] * 2
            last = [list({int(each): each for each in last[0]}.values())] * 2
    for node, address in live:
        check(driver.cuGraphAddMemFreeNode(graph, [node], 1, address))
    return graph
answers = set()
check(driver.cuCtxSynchronize())              # what streams take is charged
unknown = device_bytes() - ledger_bytes()
for seed in range(150):
    dice = random.Random(seed)
    executable = instantiate(random_graph(dice))
    where = dice.choice([stream, other])
    answers.add(launch_on(executable, where))
    if dice.random() < 0.3:
        check(driver.cuStreamSynchronize(where))
    assert ledger_bytes() <= limit, seed
    check(driver.cuGraphExecDestroy(executable))
check(driver.cuCtxSynchronize())
assert device_bytes() - ledger_bytes() == unknown
print(unknown, *sorted(answers))
"""


def test_random_graphs_never_take_more_than_the_limit(
    machine: Machine, slice_of: SliceOf, tmp_path: Path
) -> None:
    calibrated = measured_machine(tmp_path)
    for each, limit in ((machine, 24 * MIB), (calibrated, 560 * MIB)):
        part = slice_of(each, memory_bytes=limit)

        words = part.run(START + LONG + f"limit = {limit}\n" + RANDOM)

        assert words[1:] == ["0", "2"]
        assert each.books()[0].memory_peak_bytes <= limit + int(words[0])
