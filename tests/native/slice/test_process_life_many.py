"""Thousands of processes one after another, hundreds at once, and more than there are slots."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.nulldriver import DEVICE_UUID, build_driver
from libvgpu._native import lib
from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.region import create
from libvgpu.sim import PROFILES, Machine
from support import IS_LONG, Compile
from support.ended import run_to_end
from support.shim.slices import SliceOf
from support.sim.driver import driver_version

MIB = 1 << 20
BLOCK = 2 * MIB
LIMIT = 1 << 30
IN_SEQUENCE = 10_000 if IS_LONG else 400
CALLS = 4  # of each process, in which it may be told that there is no place
AT_ONCE = 200 if IS_LONG else 100  # the simulated driver has room for 256


@pytest.fixture(scope="module")
def program(compile_program: Compile) -> Path:
    return compile_program("shim_life_many.c", flags=(f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1"))


def run(program: Path, environment: dict[str, str], *numbers: int) -> tuple[list[int], str]:
    done = run_to_end([str(program), *map(str, numbers)], env=environment)
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()], done.stderr


def test_thousands_one_after_another_each_get_the_whole_limit(
    machine: Machine, slice_of: SliceOf, program: Path
) -> None:
    part = slice_of(machine, memory_bytes=LIMIT)

    counts, stderr = run(program, part.environment(), IN_SEQUENCE, 1, LIMIT)

    assert counts == [IN_SEQUENCE, 0, 0]
    assert stderr == ""
    assert sum(each.alive for each in part.usage().processes) == 0


def test_hundreds_at_once_that_fit_exactly_are_all_granted(
    slice_of: SliceOf, program: Path, tmp_path: Path
) -> None:
    profile = replace(PROFILES["h100-80g"], context_bytes=MIB)
    machine = Machine.create([profile], tmp_path / "machine", driver_version())
    part = slice_of(machine, memory_bytes=AT_ONCE * 2 * MIB)

    counts, stderr = run(program, part.environment(), 2 * AT_ONCE, AT_ONCE, MIB)

    assert counts == [2 * AT_ONCE, 0, 0]
    assert stderr == ""


def test_more_processes_than_slots_are_served_or_refused_with_a_line(
    program: Path, machine: Machine, slice_of: SliceOf, tmp_path: Path
) -> None:
    """On a driver without a limit of its own on processes. It does not tell what it gives, so that
    pieces are charged in blocks."""
    build_driver(tmp_path)
    count = lib.VGPU_SLOT_COUNT + 88
    part = slice_of(machine, memory_bytes=LIMIT)
    part.directory = tmp_path / "many"
    create(
        part.directory,
        ContainerLimits("many", Family.VGPU, (DeviceLimit(DEVICE_UUID, count * BLOCK),)),
    )
    environment = part.environment() | {"LD_LIBRARY_PATH": str(tmp_path)}

    (granted, refused, wrong), stderr = run(program, environment, count, count, BLOCK)

    assert (granted + refused, wrong) == (count, 0)
    assert granted >= lib.VGPU_SLOT_COUNT
    lines = stderr.splitlines()
    # A process says it again after a second, which may have passed until its next call.
    assert refused <= len(lines) <= CALLS * refused
    assert all(line.startswith("libvgpu: no place in ") for line in lines), lines[:3]
    counts, _ = run(program, environment, 3, 1, count * MIB)
    assert counts == [3, 0, 0]
