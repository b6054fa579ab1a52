"""Random sequences of every call that takes or gives device memory, valid and not.

The program (native/shim_fuzz.c) holds the ledger against the books of the simulated GPUs after
every step, and finds both equal at rest. What it gives back before it rests, because more is
charged there than the GPU holds, it says where it does so: libraries of which something was handed
out, tiles mapped and unmapped in other regions, what left a sparse array behind a busy stream.
"""

import os
import subprocess
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from libvgpu._sources import LIFE_SOURCE
from libvgpu.artifacts import SIM_LIBRARY_DIR, shim_path
from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.region import create, write_limits
from libvgpu.sim import PROFILES, Machine
from support import IS_LONG, ROOT, Compile
from support.waiting import PATIENCE_S

MIB = 1 << 20
LARGE_BYTES = 70 << 30
SMALL_BYTES = 320 * MIB
CONTEXT_BYTES = 96 * MIB
SEEDS = 40 if IS_LONG else 3
STEPS = 4000 if IS_LONG else 1200
#: Of limits under running programs, over as many programs as that takes.
CHANGES = 2000 if IS_LONG else 300
FAULT_SEEDS, FAULT_STEPS = 3, 1200  # longer ones still find a pool that is charged too little
TRACED_STEPS, TRIES = 600, 20
#: A run takes less than a second; one that takes so much longer has to say what it did meanwhile.
RUN_S = 300.0 if IS_LONG else PATIENCE_S
FAMILIES = ("memory", "graph", "array", "vmm", "ipc", "code", "context")
#: All but shared memory: the simulated GPU counts an ended process's bytes until somebody looks.
ALONE = "mpgavcx"
#: All but code and contexts, whose size and end cannot be known while the driver answers errors.
UNDER_FAULTS = "mpgavs"


@pytest.fixture
def program(compile_program: Compile) -> Path:
    parts = [f"tests/native/shim_fuzz_{name}.c" for name in FAMILIES]
    core = [str(path.relative_to(ROOT)) for path in (ROOT / "libvgpu/sim/core").glob("*.c")]
    sources = *parts, *sorted(core), LIFE_SOURCE
    return compile_program(
        "shim_fuzz.c", *sources, flags=(f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1")
    )


class FuzzedGpus:
    """Two GPUs whose contexts cost something, and slices of both."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.slices = folder, 0
        self.profile = replace(PROFILES["h100-80g"], context_bytes=CONTEXT_BYTES)
        self.renew()

    def renew(self) -> None:
        """A new machine: the peaks of the old one tell of other programs."""
        self.slices += 1
        folder = self.folder / f"machine-{self.slices}"
        self.machine = Machine.create([self.profile, self.profile], folder)

    def limits(self, memory_bytes: int) -> ContainerLimits:
        return ContainerLimits(
            "fuzz",
            Family.VGPU,
            tuple(
                DeviceLimit(device.uuid, memory_bytes, context_bytes=CONTEXT_BYTES)
                for device in self.machine.devices
            ),
        )

    def environment(self, memory_bytes: int | None) -> dict[str, str]:
        """Of a program under a new slice, or under none."""
        self.renew()
        environment = self.machine.environment(dict(os.environ))
        if memory_bytes is not None:
            self.directory = self.folder / f"slice-{self.slices}"
            create(self.directory, self.limits(memory_bytes))
            environment |= {"LD_PRELOAD": str(shim_path()), "VGPU_DIR": str(self.directory)}
        return environment


@pytest.fixture
def world(tmp_path: Path) -> FuzzedGpus:
    return FuzzedGpus(tmp_path)


def run(program: Path, environment: dict[str, str], *arguments: object) -> list[str]:
    """Returns the trace."""
    with subprocess.Popen(
        [program, *map(str, arguments)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            trace, errors = process.communicate(timeout=RUN_S)
        except subprocess.TimeoutExpired:
            meanwhile = activity(process.pid)
            process.kill()
            pytest.fail(f"{arguments}: not done in {RUN_S:.0f} s; {meanwhile}")
    said = [line for line in errors.splitlines() if not line.startswith("libvgpu:")]
    assert process.returncode == 0, "\n".join([f"seed {arguments[0]}: {process.returncode}", *said])
    return trace.splitlines()


def activity(pid: int) -> str:
    """Returns what tells a program that hangs from one that a loaded machine does not let run."""
    times = psutil.Process(pid).cpu_times()
    asleep_in = [(task / "wchan").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    return f"{times.user + times.system:.1f} s of processor time, its threads in {asleep_in}"


def test_the_ledger_is_never_below_the_books_and_equal_at_rest(
    world: FuzzedGpus, program: Path
) -> None:
    for seed in range(SEEDS):
        run(program, world.environment(LARGE_BYTES), seed, STEPS, "b")


def test_refusals_leave_results_and_books_as_they_were(world: FuzzedGpus, program: Path) -> None:
    for seed in range(SEEDS):
        run(program, world.environment(SMALL_BYTES), seed, STEPS, "br")
        run(program, world.environment(SMALL_BYTES), seed, STEPS, "br", ALONE, SMALL_BYTES)


def test_calls_and_allocations_that_fail_are_rolled_back(world: FuzzedGpus, program: Path) -> None:
    for seed in range(FAULT_SEEDS):
        run(program, world.environment(SMALL_BYTES), seed, FAULT_STEPS, "brf", UNDER_FAULTS)
        run(program, world.environment(LARGE_BYTES), seed, FAULT_STEPS, "bf", UNDER_FAULTS)


def first_difference(world: FuzzedGpus, program: Path, seed: int) -> tuple[str, str] | None:
    """Returns the first call that answers otherwise under the shim, without and with it."""
    alone = run(program, world.environment(None), seed, TRACED_STEPS, "t")
    under = run(program, world.environment(LARGE_BYTES), seed, TRACED_STEPS, "t")
    assert min(len(alone), len(under)) > TRACED_STEPS
    return next((pair for pair in zip(alone, under, strict=False) if pair[0] != pair[1]), None)


def test_the_shim_changes_no_answer_where_nothing_is_refused(
    world: FuzzedGpus, program: Path
) -> None:
    for seed in range(SEEDS):
        # Whether a number that was freed is one again hangs on where the kernel maps things: what
        # is the shim's difference is there every time.
        differences = []
        for _ in range(TRIES):
            differences.append(first_difference(world, program, seed))
            if differences[-1] is None:
                break
        assert differences[-1] is None, f"seed {seed}: without and with the shim: {differences}"


def test_limits_that_change_meanwhile_let_nothing_pass(world: FuzzedGpus, program: Path) -> None:
    changes = seed = 0
    while changes < CHANGES:
        seed += 1
        process = subprocess.Popen(
            [program, str(seed), str(STEPS), "b"],
            env=world.environment(SMALL_BYTES),
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        while process.poll() is None:
            size_bytes = (SMALL_BYTES, SMALL_BYTES // 2, 4 * SMALL_BYTES, 0)[changes % 4]
            write_limits(world.directory, world.limits(size_bytes))
            changes += 1
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.002)
        said = process.communicate()[1]
        assert process.returncode == 0, said[-2000:]


def test_with_room_for_contexts_alone_every_kind_is_refused(
    world: FuzzedGpus, program: Path
) -> None:
    for seed in range(SEEDS):
        trace = run(
            program, world.environment(CONTEXT_BYTES), seed, STEPS, "brt", ALONE, CONTEXT_BYTES
        )
        assert any(line.endswith("cuMemAlloc_v2 2") for line in trace)


@pytest.mark.parametrize("name", ["limits", "usage"])
def test_a_slice_that_cannot_be_read_grants_nothing_in_any_way(
    world: FuzzedGpus, program: Path, name: str
) -> None:
    environment = world.environment(LARGE_BYTES)
    (world.directory / name).chmod(0o644)
    os.truncate(world.directory / name, 100)
    for seed in range(SEEDS):
        run(program, environment, seed, STEPS, "t")
        assert [books.memory_peak_bytes for books in world.machine.books()] == [0, 0]
