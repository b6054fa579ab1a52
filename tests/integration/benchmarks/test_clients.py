"""What clients launch their kernel with: a fixed work on a real GPU, a time on a simulated one."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.nulldriver import build_client, build_driver
from benchmarks.player import PLAYER
from benchmarks.program_plans import LOOP_KERNEL_NS, loop_plan
from benchmarks.silicon.bench import Load, Window, open_bench
from benchmarks.silicon.holding import Hold
from benchmarks.silicon.spin_rate import measure_spin_rate
from benchmarks.tenant_programs import TenantClient
from benchmarks.trace_plan import script
from libvgpu.sim import PROFILES
from libvgpu.sim.calibration import find_calibration
from support import ROOT
from support.lines import tell
from support.sim.gpu import SimulatedGpu, simulated_gpu
from support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

PER_MS = 7000
#: Of a simulated GPU: a round of `native/spin_rate_client.c` is 100 ns.
SIMULATED_PER_MS = 10_000


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a driver that writes down what kernels are launched with."""
    return build_driver(
        tmp_path_factory.mktemp("recorder"), ROOT / "tests/native/launch_recorder.c"
    )


def _launched(program: Path, *arguments: str) -> set[tuple[int, ...]]:
    """Returns what a client launched: duration, rounds, blocks that work.

    Some end with stdin, however little they have launched by then, so it ends after a first launch.
    """
    with tempfile.TemporaryFile("w+") as told:
        client = subprocess.Popen(
            [program, *arguments],
            env={"LD_LIBRARY_PATH": str(program.parent)},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=told,
        )
        with suppress(BrokenPipeError):  # one that reads none may have ended
            tell(client, "go")
        wait_until(lambda: os.fstat(told.fileno()).st_size > 0 or client.poll() is not None)
        client.communicate(timeout=PATIENCE_S)
        told.seek(0)
        lines = told.readlines()
    assert client.returncode == 0, lines[-3:]
    return {tuple(map(int, line.split())) for line in lines}


@pytest.mark.parametrize("form", ["kernel", "cooperative", "graph"])
def test_a_tenant_launches_blocks_that_each_do_their_part(recorder: Path, form: str) -> None:
    client = TenantClient(2_000_000, form, blocks=5280, threads=1024, waves=20)
    program = build_client("share_client", recorder)
    arguments = client.arguments(10**12)

    assert _launched(program, *arguments, f"rounds_per_ms={PER_MS}") == {(2_000_000, 700, 5280)}
    assert _launched(program, *arguments) == {(2_000_000, 0, 5280)}


def test_turns_are_told_by_kernels_of_fixed_work(recorder: Path) -> None:
    program = build_client("turns_client", recorder)

    found = _launched(
        program, "kernel_ns=20000", f"rounds_per_ms={PER_MS}", "warm_up_ms=1", "ms=100"
    )

    assert found == {(20_000, 140, 1)}


def test_calls_are_timed_with_kernels_of_fixed_work(recorder: Path) -> None:
    found = _launched(build_client("calls_client", recorder), f"rounds_per_ms={PER_MS}")

    # the shortest one does a round, since none at all means that it watches the clock
    assert found == {(1, 1, 1), (10_000, 70, 1), (5_000_000, 35_000, 1)}


def test_a_player_launches_one_block_that_works(recorder: Path, tmp_path: Path) -> None:
    (tmp_path / "loop").write_text(script(loop_plan(8)))
    program = build_client(*PLAYER[:1], recorder, *PLAYER[1:])
    arguments = (f"script={tmp_path / 'loop'}", "warm_up=0", "seconds=0.1")

    found = _launched(program, *arguments, f"rounds_per_ms={PER_MS}")

    assert found == {(LOOP_KERNEL_NS, LOOP_KERNEL_NS * PER_MS // 10**6, 1)}


@pytest.fixture(scope="module")
def gpu() -> Iterator[SimulatedGpu]:
    profile = replace(PROFILES["h100-80g"], calibration=find_calibration("h100"))
    with simulated_gpu(profile) as made:
        yield made


@pytest.mark.timing
def test_a_simulated_gpu_has_the_rate_that_the_client_gives_it(gpu: SimulatedGpu) -> None:
    assert measure_spin_rate(gpu) == pytest.approx(SIMULATED_PER_MS, rel=0.005)


@pytest.mark.timing
@pytest.mark.parametrize("rounds_per_ms", [1, 10**9])
def test_a_simulated_kernel_is_as_long_as_asked_whatever_the_rounds(
    gpu: SimulatedGpu, rounds_per_ms: int
) -> None:
    client = TenantClient(1_000_000, blocks=264, threads=1024)

    with open_bench(gpu, rounds_per_ms) as bench:
        (rate,) = bench.rates([Load(client)], Hold.BARE, Window(0.2, 1.0))

    assert rate == pytest.approx(1000, rel=0.01)
