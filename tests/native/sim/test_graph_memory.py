"""Memory nodes of the simulated driver: what graphs take of the device, and when they let go."""

from typing import Any

import pytest

from libvgpu.sim import Machine
from support.sim.graphs import GRAPHS
from support.sim.measured import SHOWN, shown_memory
from support.sim.programs import run, said_in

MIB = 1 << 20
INVALID_VALUE, OUT_OF_MEMORY = 1, 2

MEMORY = """
def alloc_params(mib):
    params = cuda.CUDA_MEM_ALLOC_NODE_PARAMS()
    params.poolProps.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    params.poolProps.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    params.poolProps.location.id = 0
    params.bytesize = mib * MIB
    return params
def add_alloc(graph, mib, after=()):
    params, after = alloc_params(mib), list(after)
    return check(cuda.cuGraphAddMemAllocNode(graph, after, len(after), params)), int(params.dptr)
def add_free(graph, address, after=()):
    after = list(after)
    return check(cuda.cuGraphAddMemFreeNode(graph, after, len(after), address))
def free_code(graph, address): return code(cuda.cuGraphAddMemFreeNode(graph, [], 0, address))
total = check(cuda.cuMemGetInfo())[0]
def taken(): return (total - check(cuda.cuMemGetInfo())[0]) // MIB
Attr = cuda.CUgraphMem_attribute
def attribute(name):
    return int(check(cuda.cuDeviceGetGraphMemAttribute(
        0, getattr(Attr, f"CU_GRAPH_MEM_ATTR_{name}")))) // MIB
def trim(): check(cuda.cuDeviceGraphMemTrim(0))
"""
#: A second stream, and graphs that have their memory until ``release`` is set.
HELD = """
import threading
held, release = threading.Event(), threading.Event()
def build(mib):
    graph = new_graph()
    a, address = add_alloc(graph, mib)
    b = add_host(graph, lambda _: (held.set(), release.wait()), [a])
    add_free(graph, address, [b])
    return instantiate(graph)
other = check(cuda.cuStreamCreate(1))
"""


def test_memory_is_taken_at_a_launch_and_kept_until_it_is_trimmed(machine: Machine) -> None:
    code = """
graph = new_graph()
a, address = add_alloc(graph, 64)
b = add_fill(graph, address, 3, [a])
c = add_free(graph, address, [b])
d, later = add_alloc(graph, 32, [c])
add_free(graph, later, [d])
same(taken(), 0)
executable = instantiate(graph)
same(taken(), 0)
launch(executable); launch(executable); wait()
same(taken(), 64)
trim()
same(taken(), 0)
same(attribute("RESERVED_MEM_HIGH"), 64)
same(attribute("RESERVED_MEM_CURRENT"), 0)
same(code(cuda.cuMemFree(address)), INVALID_VALUE)
"""
    run(machine, GRAPHS + MEMORY + code)


def test_memory_left_allocated_has_its_address_and_is_freed_from_outside(machine: Machine) -> None:
    code = """
graph = new_graph()
a, address = add_alloc(graph, 64)
add_fill(graph, address, 3, [a])
executable = instantiate(graph)
launch(executable); wait()
first, again = bytes_of(address, 2), code(cuda.cuGraphLaunch(executable, stream))
trim()
same([taken(), attribute("USED_MEM_CURRENT")], [64, 64])
frees = [code(cuda.cuMemFree(int(address) + 512)), code(cuda.cuMemFree(address)),
         code(cuda.cuMemFree(address))]
trim()
same(taken(), 0)
launch(executable); check(cuda.cuMemFreeAsync(address, stream)); launch(executable); wait()
check(cuda.cuGraphExecDestroy(executable)); check(cuda.cuGraphDestroy(graph))
trim()
orphan = [taken(), code(cuda.cuMemFree(address)), code(cuda.cuMemFree(address))]
trim()
same(first, [3, 3])
same(again, INVALID_VALUE)
same(frees, [INVALID_VALUE, 0, INVALID_VALUE])
same(orphan, [64, 0, INVALID_VALUE])
same(taken(), 0)
"""
    run(machine, GRAPHS + MEMORY + code)


def test_another_graph_frees_it_or_the_next_launch_does(machine: Machine) -> None:
    code = """
graph, freeing = new_graph(), new_graph()
_, address = add_alloc(graph, 64)
add_free(freeing, address)
same(free_code(freeing, address), INVALID_VALUE)
same(free_code(graph, address), INVALID_VALUE)
same(free_code(freeing, check(cuda.cuMemAlloc(1))), INVALID_VALUE)
executable, frees = instantiate(graph), instantiate(freeing)
same(code(cuda.cuGraphLaunch(frees, stream)), INVALID_VALUE)
for _ in range(3): launch(executable); launch(frees)
wait(); trim()
same(taken(), 0)
auto_graph = new_graph()
_, auto_address = add_alloc(auto_graph, 16)
auto = instantiate(auto_graph, 1)
for _ in range(3): launch(auto)
wait(); trim()
same(taken(), 16)
"""
    run(machine, GRAPHS + MEMORY + code)


def test_a_launch_that_finds_too_little_memory_takes_none(machine: Machine) -> None:
    code = """
graph = new_graph()
add_alloc(graph, 64)
_, address = add_alloc(graph, total // MIB)
executable = instantiate(graph)
result = code(cuda.cuGraphLaunch(executable, stream))
trim()
say(result=result, taken=taken(), used=attribute("USED_MEM_CURRENT"))
"""
    assert said_in(machine, GRAPHS + MEMORY + code) == {
        "result": OUT_OF_MEMORY,
        "taken": 0,
        "used": 0,
    }


def test_graphs_under_way_in_two_streams_have_memory_of_their_own(machine: Machine) -> None:
    code = """
launch(build(64)); check(cuda.cuGraphLaunch(build(64), other))
held.wait(); trim()
during = taken()
release.set(); wait(); check(cuda.cuStreamSynchronize(other)); trim()
say(during=during, after=taken())
"""
    assert said_in(machine, GRAPHS + MEMORY + HELD + code) == {"during": 128, "after": 0}


def test_an_upload_shares_the_memory_of_launches_under_way_in_its_stream(machine: Machine) -> None:
    code = """
def upload(executable, stream): check(cuda.cuGraphUpload(executable, stream))
first = build(64)
launch(first); held.wait()
upload(first, stream); same = taken()
upload(build(64), stream); another = taken()
upload(build(96), stream); larger = taken()
upload(build(64), other); elsewhere = taken()
release.set(); wait(); trim()
say(same=same, another=another, larger=larger, elsewhere=elsewhere, after=taken())
"""
    values = said_in(machine, GRAPHS + MEMORY + HELD + code)

    # the last one can take nothing from the launch under way, whose memory the larger one shares
    assert values == {"same": 64, "another": 64, "larger": 96, "elsewhere": 160, "after": 0}


CASES = {name: case for name, case in SHOWN["graph_memory"].items() if name != "how"}


def steps_of(name: str) -> list[str]:
    """Returns the calls of a case, those between two looks at the attributes joined."""
    if " exec " not in name:
        return name.replace("wait, trim", "wait+trim").split(", ")
    calls, place = name.rsplit(" exec ", 1)
    first, second = calls.split(", ")
    call, which = second.split()
    graph = {"same": "A", "other": "B", "larger": "L"}[which]
    return [f"{first} A s", f"{call} {graph} {'s' if place == 'same stream' else 't'}"]


@pytest.mark.parametrize("name", CASES)
def test_one_executable_graph_has_its_memory_once_as_on_an_h100(
    machine: Machine, name: str
) -> None:
    case: dict[str, Any] = CASES[name]
    code = f"""
import threading
steps, seen, release = {steps_of(name)}, [], []
streams = {{"s": stream, "t": check(cuda.cuStreamCreate(1))}}
def build(mib):
    done = threading.Event()
    release.append(done)
    graph = new_graph()
    a, address = add_alloc(graph, mib)
    b = add_host(graph, lambda _: done.wait(), [a])
    add_free(graph, address, [b])
    return instantiate(graph)
graphs = {{"A": build(64), "B": build(64), "L": build(96)}}
def wait_all():
    for done in release: done.set()
    for each in streams.values(): check(cuda.cuStreamSynchronize(each))
    for done in release: done.clear()
def look(): return [attribute("USED_MEM_CURRENT"), attribute("RESERVED_MEM_CURRENT")]
for step in steps:
    for call in step.split("+"):
        if call == "wait": wait_all()
        elif call == "trim": trim()
        else:
            what, graph, where = call.split()
            use = cuda.cuGraphLaunch if what == "launch" else cuda.cuGraphUpload
            check(use(graphs[graph], streams[where]))
    seen.append(look())
during = taken()
wait_all()
say(seen=seen, after=look(), during=during, left=taken())
"""
    assert said_in(machine, GRAPHS + MEMORY + code) == {
        "seen": case["used_reserved_mib"],
        "after": case["after_mib"],
        "during": case["used_reserved_mib"][-1][1],
        "left": case["after_mib"][1],
    }


def test_allocations_that_follow_each_other_lie_on_top_of_each_other(machine: Machine) -> None:
    shown = shown_memory("graph_100x64MiB")["graph_100x64MiB"]
    code = """
graph, after = new_graph(), []
for _ in range(100):
    node, address = add_alloc(graph, 64, after)
    after = [add_free(graph, address, [node])]
executable = instantiate(graph)
seen = {"instantiate": taken()}
check(cuda.cuGraphUpload(executable, stream)); seen["upload"] = taken()
launch(executable); wait(); seen["launch"] = taken()
attributes = [attribute(name) for name in (
    "USED_MEM_CURRENT", "USED_MEM_HIGH", "RESERVED_MEM_CURRENT", "RESERVED_MEM_HIGH")]
trim()
say(seen=seen, attributes=attributes, trimmed=taken())
"""
    values = said_in(machine, GRAPHS + MEMORY + code)

    key = "attributes_used_usedhigh_reserved_reservedhigh"
    assert values == {
        "seen": {step: shown[step] // MIB for step in ("instantiate", "upload", "launch")},
        "attributes": [bytes // MIB for bytes in shown[key]],
        "trimmed": shown_memory("after_trim")["after_trim"],
    }


def test_memory_of_a_graph_is_not_taken_from_it_while_another_launch_uses_it(
    machine: Machine,
) -> None:
    code = """
first, second = build(64), build(64)
launch(first); held.wait()
check(cuda.cuGraphUpload(second, stream)); shared = taken()
check(cuda.cuGraphLaunch(second, other)); apart = taken()
release.set(); wait(); check(cuda.cuStreamSynchronize(other))
kept = taken()
big = new_graph(); add_alloc(big, 128); launch(instantiate(big)); wait()
say(shared=shared, apart=apart, kept=kept, taken_over=taken(), used=attribute("USED_MEM_CURRENT"))
"""
    values = said_in(machine, GRAPHS + MEMORY + HELD + code)

    assert values == {"shared": 64, "apart": 128, "kept": 128, "taken_over": 128, "used": 128}


def test_graphs_with_memory_nodes_are_not_copied_or_taken_apart(machine: Machine) -> None:
    code = """
graph = new_graph()
a, address = add_alloc(graph, 1)
b = add_free(graph, address, [a])
executable = instantiate(graph)
same(code(cuda.cuGraphInstantiate(graph, 0)), INVALID_VALUE)
check(cuda.cuGraphExecDestroy(executable))
same(code(cuda.cuGraphInstantiate(graph, 0)), 0)
outer = new_graph()
same(code(cuda.cuGraphClone(graph)), INVALID_VALUE)
same(code(cuda.cuGraphAddChildGraphNode(outer, [], 0, graph)), INVALID_VALUE)
same(code(cuda.cuGraphDestroyNode(b)), INVALID_VALUE)
same(code(cuda.cuGraphRemoveDependencies(graph, [a], [b], None, 1)), INVALID_VALUE)
same(int(check(cuda.cuGraphMemFreeNodeGetParams(b))) == int(address), True)
"""
    run(machine, GRAPHS + MEMORY + code)


def test_captured_allocations_become_memory_nodes(machine: Machine) -> None:
    code = """
begin()
address = check(cuda.cuMemAllocAsync(64 * MIB, stream))
check(cuda.cuMemsetD8Async(address, 4, 8, stream))
check(cuda.cuMemFreeAsync(address, stream))
kept_address = check(cuda.cuMemAllocAsync(8 * MIB, stream))
check(cuda.cuMemsetD8Async(kept_address, 5, 8, stream))
graph = end()
captured = taken()
executable = instantiate(graph)
launch(executable); wait()
values = bytes_of(kept_address, 2)
trim()
say(types=types_of(graph), captured=captured, values=values, live=taken())
"""
    values = said_in(machine, GRAPHS + MEMORY + code)

    assert values == {"types": [10, 2, 11, 10, 2], "captured": 0, "values": [5, 5], "live": 8}


def test_a_free_node_that_was_refused_frees_nothing(machine: Machine) -> None:
    code = """
graph, other = new_graph(), new_graph()
node, address = add_alloc(graph, 4)
foreign, _ = add_alloc(other, 4)
refused = [code(cuda.cuGraphAddMemFreeNode(graph, [foreign], 1, address)),
           code(cuda.cuGraphAddMemFreeNode(other, [node], 1, address))]
launch(instantiate(graph)); wait()
left = taken()
check(cuda.cuMemFree(address))
say(refused=refused, left=left, accepted=free_code(graph, address))
"""
    values = said_in(machine, GRAPHS + MEMORY + code)
    assert values == {"refused": [INVALID_VALUE] * 2, "left": 4, "accepted": 0}
