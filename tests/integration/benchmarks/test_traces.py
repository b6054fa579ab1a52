"""Programs played back on the simulated GPU do what their traces say, launch for launch."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.played_tenants import PlayedTenant
from benchmarks.player import PLAYER, PlayedProgram
from benchmarks.stage import Stage, open_stage
from benchmarks.trace import DIRECTORY, Row, Trace, read_trace
from benchmarks.trace_calls import CALLS, COPIES
from benchmarks.trace_plan import make_plan, script
from libvgpu import artifacts
from libvgpu.sim.books import ClientBooks
from support.waiting import PATIENCE_S

SECONDS = 1.0
#: What a decode step gives the GPU: kernels, and with memsets and copies.
DECODE_KERNELS, DECODE_WORK = 121, 135

if not artifacts.SHIM_PATH.exists() or shutil.which("cc") is None:
    pytest.skip("libvgpu.so is not built, or there is no C compiler", allow_module_level=True)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with open_stage(*PLAYER) as opened:
        yield opened


def _play(stage: Stage, trace: Trace, seconds: float) -> tuple[dict[str, float], ClientBooks]:
    """Returns what the player said and what the machine's books say of it."""
    path = stage.directory / "played"
    path.write_text(script(make_plan(trace)))
    program = PlayedProgram(trace.program, path, 0.0, seconds)
    with stage.open([PlayedTenant(program, 100)], None) as running:
        running.go(0)
        (line,) = running.answers(PATIENCE_S)
        (books,) = running.machine.books()[0].clients
    said: dict[str, float] = json.loads(line)
    return said, books


def test_a_decode_step_launches_what_its_trace_says(stage: Stage) -> None:
    trace = read_trace(DIRECTORY / "decode.json.gz")

    said, books = _play(stage, trace, SECONDS)

    steps = said["steps"]
    assert steps > 0
    assert books.launches == steps * DECODE_KERNELS
    assert said["launches_per_second"] * said["seconds"] == pytest.approx(steps * DECODE_WORK, 1e-3)
    assert said["steps_per_second"] * said["seconds"] == pytest.approx(steps, rel=1e-3)
    assert books.busy_ns >= steps * said["gpu_ms_per_step"] * 1e6 * 0.99
    assert 0 <= said["cpu_wait_percent"] < 100
    # No step is over before its gaps are.
    least_ms = min(sum(row.gap_ns for row in step) for step in make_plan(trace).trace.steps) / 1e6
    assert said["step_p99_ms"] >= said["step_p50_ms"] >= least_ms


def test_a_graph_has_the_kernels_of_the_trace_that_it_names(stage: Stage) -> None:
    trace = read_trace(DIRECTORY / "gptgraph.json.gz")

    said, books = _play(stage, trace, 0.1)

    kernels = sum(row.blocks > 0 for row in trace.nodes)
    fills_ns = sum(row.gpu_ns for row in trace.nodes if not row.blocks)
    assert books.launches == said["steps"] * kernels
    assert said["gpu_ms_per_step"] == pytest.approx(trace.plain_step_ms - fills_ns / 1e6, rel=1e-3)


@pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="the kernel keeps no schedstat"
)
def test_players_that_share_a_processor_say_how_long_they_waited_for_it(stage: Stage) -> None:
    path = stage.directory / "shared"
    path.write_text(script(make_plan(read_trace(DIRECTORY / "decode.json.gz"))))
    tenant = PlayedTenant(PlayedProgram("decode", path, 0.0, SECONDS), 100)
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})  # of this thread, and of what it starts
    try:
        with stage.open([tenant, tenant], None) as running:
            for index in range(2):
                running.go(index)
            said = [json.loads(line) for line in running.answers(PATIENCE_S)]
    finally:
        os.sched_setaffinity(0, allowed)

    waited = [each["cpu_wait_percent"] for each in said]
    assert sum(waited) > 50  # both spin all the time, so about 50 each
    assert max(waited) < 100


def test_every_call_is_played(stage: Stage) -> None:
    # GIVEN a step with each call and each copy, on the default stream and another one
    rows = [
        Row(call, 0, 0, driver_call, kind=1, blocks=2, threads=32, gpu_ns=1000, event=2)
        for call, (driver_call, _) in CALLS.items()
        if driver_call and call not in ("cudaGraphLaunch", "cudaMemsetAsync")
    ]
    rows.append(Row("cudaMemsetAsync", 0, 0, "cuMemsetD8Async", bytes=64))
    rows += [
        Row("cudaMemcpyAsync", 0, 0, driver_call, bytes=64, copy=copy)
        for copy, driver_call in COPIES.items()
    ]
    rows = [row for row in rows if row.bytes or row.call != "cudaMemcpyAsync"]
    step = tuple(replace(row, stream=stream) for stream in (0, 1) for row in rows)
    is_launch = ("cudaLaunch", "cuLaunch")

    said, books = _play(stage, Trace("all", 1.0, 2, (step,)), 0.05)

    launches = sum(row.call.startswith(is_launch) for row in step)
    assert launches == 2 * 5
    assert books.launches == said["steps"] * launches


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("trace 2\n", "line 1"),
        ("{head}step 1\ncuNew 0 0 1 1 0 1 1\n", "line 8: no call of that name"),
        ("{head}step 1\ncuLaunchKernel 0 1 1 1 0 1 1\n", "line 8: no such stream, kind or"),
    ],
)
def test_a_wrong_script_is_told_by_its_line(
    lines: str, why: str, stage: Stage, tmp_path: Path
) -> None:
    head = "trace 1\nkinds 1\nstreams 1\nevents 0\nbytes 1\nsync_steps 0\n"
    path = tmp_path / "script"
    path.write_text(lines.format(head=head))

    result = subprocess.run(
        [stage.program, f"script={path}"], capture_output=True, text=True, timeout=PATIENCE_S
    )

    assert result.returncode == 2
    assert why in result.stderr


def test_the_figure_tells_bare_steps_and_what_the_shim_leaves(tmp_path: Path) -> None:
    found = tmp_path / "found.json"

    status = command.main(
        ["run", "traces", "--count", "1", "--rounds", "1", "--seconds", "0.5", "--json", str(found)]
    )

    (figure,) = json.loads(found.read_text())["figures"]
    values = {(m["subject"], m["quantity"]): m["value"] for m in figure["measurements"]}
    assert status == 0
    assert set(values) == {
        ("none", "steps"),
        ("H100, 2026-11-22", "steps"),
        ("none", "p99 of a step"),
        ("H100, 2026-11-22", "steps at 90 %"),
        ("libvgpu", "steps at 90 %"),
        ("libvgpu", "p99 of a step at 90 %"),
    }
    assert all(values.values())
