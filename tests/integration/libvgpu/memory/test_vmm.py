"""Memory in separate physical and virtual parts under a slice: charged while anybody has it."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.region import create
from libvgpu.sim import Machine
from support import IS_LONG, Compile
from support.lines import next_line, tell
from support.shim.slices import Slice, SliceOf
from support.shim.vmm_programs import VMM
from support.waiting import PATIENCE_S

GIB, MIB = 1 << 30, 1 << 20
ROUNDS, SEEDS = (40, 4) if IS_LONG else (12, 1)
STRESS_BYTES = 128 * MIB


def ran(part: Slice, code: str, *, shim: bool = True) -> list[int]:
    return [int(word) for word in part.run(VMM + code, shim=shim)]


def test_a_handle_is_granted_to_the_last_byte_and_not_one_granule_more(
    machine: Machine, part: Slice
) -> None:
    code = """
whole = create(1024 * MIB); print(used(), ask(GRANULE), used())
print(release(whole), used(), ask(1024 * MIB + GRANULE), ask(1024 * MIB))
"""
    process = part.start(VMM + code)
    stdout, stderr = process.communicate(timeout=PATIENCE_S)

    assert stdout.split() == ["1024", "2", "1024", "0", "0", "2", "0"]
    lines = stderr.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("libvgpu: out of memory: 2.00 MiB (vmm) asked on GPU-")
    assert lines[0].endswith("; the limit is set by vgpuctl run")
    assert machine.books()[0].memory_used_bytes == 0


def test_memory_released_while_it_is_mapped_stays_charged(machine: Machine, part: Slice) -> None:
    code = """
size = 600 * MIB
place = reserve(3 * size)
codes = []
for i in range(3):
    result, handle = driver.cuMemCreate(size, properties(), 0)
    codes.append(int(result))
    if codes[-1] == 0:
        codes += [map_at(place + i * size, handle, size), release(handle)]
print(*codes, used(), flush=True); sys.stdin.readline()
print(unmap(place, size), used(), ask(size), flush=True)
"""
    process = part.start(VMM + code)
    assert next_line(process).split() == ["0", "0", "0", "2", "2", "600"]
    assert machine.books()[0].memory_used_bytes == 600 * MIB
    tell(process)

    assert next_line(process).split() == ["0", "0", "0"]


def test_one_unmapping_may_end_several_mappings(part: Slice) -> None:
    code = """
place = reserve(5 * GRANULE)
for i in range(5):
    handle = create(GRANULE)
    map_at(place + i * GRANULE, handle, GRANULE); release(handle)
print(used(), unmap(place + GRANULE, 3 * GRANULE), used())
print(unmap(place, GRANULE // 2), unmap(place, 2 * GRANULE), used())
print(unmap(place, GRANULE), unmap(place + 4 * GRANULE, GRANULE), used())
"""
    assert ran(part, code) == [10, 0, 4, 1, 1, 4, 0, 0, 0]


def test_a_handle_retained_by_address_keeps_the_memory(part: Slice) -> None:
    code = """
place, handle = reserve(GRANULE), create(GRANULE)
map_at(place, handle, GRANULE)
again = check(driver.cuMemRetainAllocationHandle(place + 12345))
print(release(handle), unmap(place, GRANULE), used(), release(again), used())
print(int(driver.cuMemRetainAllocationHandle(place)[0]), release(handle))
"""
    assert ran(part, code) == [0, 0, 2, 0, 0, 1, 1]


def test_handles_outlive_contexts(part: Slice) -> None:
    code = """
place, handle, other = reserve(GRANULE), create(GRANULE), create(GRANULE)
map_at(place, handle, GRANULE); release(handle)
check(driver.cuDevicePrimaryCtxReset(0)); open_context()
print(used(), unmap(place, GRANULE), used(), release(other), used())
"""
    assert ran(part, code) == [4, 0, 2, 0, 0]


def test_what_the_driver_refuses_is_not_charged(part: Slice) -> None:
    code = """
place, handle = reserve(2 * GRANULE), create(GRANULE)
print(ask(GRANULE + 1), ask(0), ask(GRANULE, device=7), map_at(place, 999, GRANULE),
      map_at(place, handle, 2 * GRANULE), map_at(place + GRANULE // 2, handle, GRANULE),
      unmap(place, GRANULE), release(999), release(handle), release(handle), used())
"""
    with_shim, without = ran(part, code), ran(part, code, shim=False)

    assert with_shim == without
    assert with_shim[-1] == 0


def test_memory_of_the_host_is_never_charged(machine: Machine, slice_of: SliceOf) -> None:
    part = slice_of(machine, memory_bytes=2 * MIB)
    code = """
place, handle = reserve(32 * MIB), create(32 * MIB, host=True)
print(used(), map_at(place, handle, 32 * MIB), release(handle), unmap(place, 32 * MIB), used())
"""
    assert ran(part, code) == [0, 0, 0, 0, 0]


def test_a_handle_is_charged_where_its_memory_lies(
    two_gpus: Machine, slice_of: SliceOf, tmp_path: Path
) -> None:
    part = slice_of(two_gpus, memory_bytes=GIB)
    first, second = (DeviceLimit(device.uuid, GIB) for device in two_gpus.devices)
    part.directory = tmp_path / "two"
    second = replace(second, memory_limit_bytes=4 * MIB)
    create(part.directory, ContainerLimits("two", Family.VGPU, (first, second)))
    code = """
handle = create(4 * MIB, device=1)
print(used(), ask(GRANULE, device=1), ask(GRANULE, device=0), release(handle))
print(ask(4 * MIB, device=1))
"""
    assert ran(part, code) == [0, 2, 0, 0, 0]


def test_a_gpu_that_the_slice_does_not_name_gives_no_handles(
    two_gpus: Machine, slice_of: SliceOf
) -> None:
    part = slice_of(two_gpus, memory_bytes=GIB)

    assert ran(part, "print(ask(GRANULE, device=1), ask(GRANULE))") == [2, 0]


def test_a_forked_child_knows_nothing_of_its_parents_handles(part: Slice) -> None:
    code = """
import os
place, handle = reserve(GRANULE), create(GRANULE)
map_at(place, handle, GRANULE); release(handle)
if os.fork() == 0:
    unmap(place, GRANULE); release(handle)
    os._exit(0)
os.wait()
print(used(), unmap(place, GRANULE), used())
"""
    assert ran(part, code) == [2, 0, 0]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_ledger_and_driver_agree_whenever_racing_threads_stand_still(
    machine: Machine, slice_of: SliceOf, compile_program: Compile, seed: int
) -> None:
    part = slice_of(machine, memory_bytes=STRESS_BYTES)
    program = compile_program(
        "shim_vmm_stress.c", flags=(f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1")
    )
    process = subprocess.Popen(
        [program, str(ROUNDS), str(seed)],
        env=part.environment(),
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    part.processes.append(process)
    seen = []
    for _ in range(ROUNDS + 1):
        refusals = int(next_line(process))
        seen.append(machine.books()[0].memory_used_bytes)
        assert part.usage().devices[0].used_bytes == seen[-1]
        tell(process)

    assert seen[-1] == 0
    assert max(seen) > STRESS_BYTES / 2
    assert refusals > 0
    assert process.wait(PATIENCE_S) == 0
