"""Multicast objects of the simulated GPU, and how long what is bound to them lives."""

import json
from pathlib import Path

import pytest

from libvgpu.sim import PROFILES, Machine
from support.lines import next_line, tell
from support.sim.programs import run, said_in, start
from support.sim.sharing import MULTICAST, VMM
from support.waiting import PATIENCE_S

ALONE = (
    VMM
    + MULTICAST
    + """
open_context()
start, used_now = used(), used
def used(): return used_now() - start
"""
)


@pytest.fixture
def pair_of_gpus(tmp_path: Path) -> Machine:
    return Machine.create([PROFILES["h100-80g"]] * 2, tmp_path / "machine")


def test_an_object_costs_nothing_and_what_is_bound_lives_until_it_is_unbound(
    pair_of_gpus: Machine,
) -> None:
    code = """
group = team()
memory = create(2)
steps = [used(), bind(group, memory, 2), release(memory), used(), unbind(group, 2), used()]
say(steps=steps, again=unbind(group, 2), released=release(group))
"""
    assert said_in(pair_of_gpus, ALONE + code) == {
        "steps": [2, 0, 0, 2, 0, 0],
        "again": 1,
        "released": 0,
    }


def test_what_is_bound_by_its_address_outlives_its_mapping(pair_of_gpus: Machine) -> None:
    code = """
group, memory, place = team(), create(2), reserve(2)
steps = [map_at(place, memory, 2), bind_address(group, place + GRANULE, 1, at=3)]
steps += [unmap(place, 2), release(memory), used(), unbind(group, 1, at=3), used()]
say(steps=steps)
"""
    assert said_in(pair_of_gpus, ALONE + code) == {"steps": [0, 0, 0, 0, 2, 0, 0]}


def test_an_object_holds_what_is_bound_until_neither_handle_nor_mapping_is_left(
    pair_of_gpus: Machine,
) -> None:
    code = """
group, memory, place = team(2), create(), reserve(2)
steps = [bind(group, memory), release(memory), map_at(place, group, 2), grant(place, 2)]
again = check(cuda.cuMemRetainAllocationHandle(place))
steps += [write(place, b"to all"), release(group), release(again), used(), unmap(place, 2), used()]
say(steps=steps)
"""
    assert said_in(pair_of_gpus, ALONE + code) == {"steps": [0, 0, 0, 0, 0, 0, 0, 1, 0, 0]}


def test_each_gpu_of_a_team_binds_its_own_memory(pair_of_gpus: Machine) -> None:
    code = """
group = team(devices=(0, 1))
one, other = create_on(0), create_on(1, 3)
steps = [bind(group, one), bind(group, other, 3), release(one), release(other)]
print(json.dumps(steps), flush=True)
input()
check(cuda.cuMulticastUnbind(group, 1, 0, 3 * GRANULE))
print(json.dumps([unbind(group, 3, device=0), unbind(group, device=0)]), flush=True)
input()
"""
    context_bytes = PROFILES["h100-80g"].context_bytes
    program = start(pair_of_gpus, ALONE + code)
    try:
        assert json.loads(next_line(program)) == [0, 0, 0, 0]
        used = [each.memory_used_bytes for each in pair_of_gpus.books()]
        assert used == [context_bytes + (2 << 20), 6 << 20]
        tell(program)
        assert json.loads(next_line(program)) == [1, 0]
        assert [each.memory_used_bytes for each in pair_of_gpus.books()] == [context_bytes, 0]
    finally:
        program.kill()
        program.wait(PATIENCE_S)


def test_the_team_must_be_complete(pair_of_gpus: Machine) -> None:
    code = """
group, memory, place = check(cuda.cuMulticastCreate(wanted(1, 2))), create(), reserve()
add = lambda device: code(cuda.cuMulticastAddDevice(group, device))
steps = [add(0), bind(group, memory), map_at(place, group), add(0), add(7), add(1), add(1)]
same(steps, [0, 401, 401, 1, 101, 0, 1])
same([bind(group, memory), map_at(place, group), used()], [0, 0, 1])
same(code(cuda.cuMulticastCreate(wanted(1, 3))), 1)
"""
    run(pair_of_gpus, ALONE + code)


def test_what_cannot_be_bound_is_refused_and_not_held(pair_of_gpus: Machine) -> None:
    code = """
group, other, memory, host = team(), team(), create(2), create(host=True)
place = reserve(2)
map_at(place, memory, 2)
answers = dict(
    fits=[bind(group, memory, 1, at=1), bind(group, memory, 2, at=2)],
    taken=[bind(group, memory, 1, at=1), bind(group, memory, 2, at=0), bind(group, memory, 1, at=3)],
    beyond=[bind(other, memory, 3), bind(other, memory, 1, memory_at=2), bind(other, memory, 2, at=3),
            bind(other, memory, 0)],
    part=code(cuda.cuMulticastBindMem(other, 4096, memory, 0, GRANULE, 0)),
    things=[bind(other, host), bind(other, group), bind(memory, memory), bind(other, 999),
            bind_address(other, place + GRANULE, 2), bind_address(other, place + 4096),
            bind_address(other, check(cuda.cuMemAlloc(4 * GRANULE)))],
    unbound=[unbind(other), unbind(group, 2, at=1), unbind(group, 1, at=1, device=3)])
release(memory)
say(**answers, about=code(cuda.cuMemGetAllocationPropertiesFromHandle(group)))
"""  # noqa: E501
    assert said_in(pair_of_gpus, ALONE + code) == {
        "fits": [0, 0],
        "taken": [1, 1, 1],
        "beyond": [1, 1, 1, 1],
        "part": 1,
        "things": [1, 1, 1, 1, 1, 1, 1],
        "unbound": [1, 1, 101],
        "about": 1,
    }


def test_objects_are_of_whole_granules_and_not_for_the_fabric(pair_of_gpus: Machine) -> None:
    code = """
odd = wanted()
odd.size = GRANULE + 4096
minimum = cuda.CUmulticastGranularity_flags.CU_MULTICAST_GRANULARITY_MINIMUM
supported = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED
same(int(check(cuda.cuMulticastGetGranularity(wanted(), minimum))), 2 << 20)
same(check(cuda.cuDeviceGetAttribute(supported, 0)), 1)
same([code(cuda.cuMulticastCreate(each)) for each in
      (odd, wanted(0), wanted(1, 0), wanted(handle_types=8))], [1, 1, 1, 801])
"""
    run(pair_of_gpus, ALONE + code)


@pytest.mark.parametrize("gpus", [["h100-80g"], ["a100-80g"] * 2], ids=["alone", "older"])
def test_a_gpu_that_is_alone_or_older_has_no_multicast(tmp_path: Path, gpus: list[str]) -> None:
    machine = Machine.create([PROFILES[name] for name in gpus], tmp_path / "machine")
    code = """
minimum = cuda.CUmulticastGranularity_flags.CU_MULTICAST_GRANULARITY_MINIMUM
supported = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED
say(supported=check(cuda.cuDeviceGetAttribute(supported, 0)),
    refused=[code(cuda.cuMulticastCreate(wanted())),
             code(cuda.cuMulticastGetGranularity(wanted(), minimum)),
             code(cuda.cuMulticastAddDevice(create(), 0))])
"""
    assert said_in(machine, ALONE + code) == {"supported": 0, "refused": [801, 801, 801]}
