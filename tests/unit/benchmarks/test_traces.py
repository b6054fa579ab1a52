"""Traces of real programs: what is read, and how gaps are scaled."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import playback
from benchmarks.playback import PAIR, PROGRAMS
from benchmarks.played_tenants import Kept, PlayedWindow
from benchmarks.player import Played
from benchmarks.repeats import OURS
from benchmarks.tenant_programs import Window
from benchmarks.trace import DIRECTORY, Row, Trace, read_trace
from benchmarks.trace_calls import CALLS, COPIES, REACH_NS, call_ns
from benchmarks.trace_plan import compose, make_plan, script
from libvgpu.errors import VgpuError
from libvgpu.sim.calibration import call_names, find_calibration

MS_NS = 10**6
LAUNCH_NS = call_ns("cuLaunchKernel")
SYNC_NS = call_ns("cuStreamSynchronize")


def _launch(gpu_ns: int = 1000, gap_ns: int = 0, stream: int = 0) -> Row:
    return Row("cudaLaunchKernel", 9000, gap_ns, "cuLaunchKernel", stream, 0, 1, 32, gpu_ns)


def _sync(stream: int = 0) -> Row:
    return Row("cudaStreamSynchronize", 9000, 0, "cuStreamSynchronize", stream)


def _asks_nothing(host_ns: int, gap_ns: int = 0) -> Row:
    return Row("cudaGetErrorString", host_ns, gap_ns, None)


def _trace(*rows: Row, plain_step_ms: float, nodes: tuple[Row, ...] = ()) -> Trace:
    return Trace("made up", plain_step_ms, 1, (rows,), nodes)


def _form() -> dict[str, Any]:
    row = {"call": "cudaLaunchKernel", "host_ns": 1, "gap_ns": 2, "stream": 0, "kind": 0}
    launch = row | {"blocks": 3, "threads": 4, "gpu_ns": 5}
    copy = {"call": "cudaMemcpyAsync", "host_ns": 1, "gap_ns": 2, "stream": 0, "bytes": 8}
    copy |= {"copy": "device to pinned", "gpu_ns": 5}
    steps = [[launch, copy], [dict(launch), dict(copy)]]
    return {"form": 1, "program": "p", "plain_step_ms": 1.5, "kinds": 1, "steps": steps}


def _write(path: Path, form: object) -> Path:
    path.write_bytes(gzip.compress(json.dumps(form).encode()))
    return path


@pytest.mark.parametrize(
    ("name", "launches", "kinds"),
    [
        ("gpt", 569, 70),
        ("conv", 112, 64),
        ("decode", 135, 8),
        ("generate", 2281, 69),
        ("gptgraph", 1, 70),
    ],
)
def test_the_traces_have_what_the_programs_launched(name: str, launches: int, kinds: int) -> None:
    trace = read_trace(DIRECTORY / f"{name}.json.gz")

    assert (trace.program, trace.launches_per_step, trace.kinds) == (name, launches, kinds)
    assert len(trace.steps) == 3
    assert len(trace.nodes) == (569 if name == "gptgraph" else 0)


@pytest.mark.parametrize("name", PROGRAMS)
def test_calls_gaps_and_waits_make_up_a_plain_step(name: str) -> None:
    trace = read_trace(DIRECTORY / f"{name}.json.gz")

    plan = make_plan(trace)

    plain_ns = trace.plain_step_ms * MS_NS
    assert [step.total_ns for step in plan.steps] == pytest.approx([plain_ns] * 3, rel=1e-3)
    played_ns = [sum(row.gap_ns for row in step) for step in plan.trace.steps]
    assert played_ns == pytest.approx([step.gaps_ns for step in plan.steps], rel=1e-3)
    # GPU durations are true, but for the pauses in a graph.
    of_kernels = [sum(row.gpu_ns for row in step if row.blocks) for step in trace.steps]
    fills_ns = sum(row.gpu_ns for row in trace.nodes if not row.blocks)
    expected_ns = plain_ns - fills_ns if name == "gptgraph" else sum(of_kernels) / 3
    assert plan.gpu_ns == pytest.approx(expected_ns, rel=1e-3)
    assert plan.sync_steps == (10 if name == "gptgraph" else 0)


def test_one_factor_scales_every_gap_of_a_step() -> None:
    # GIVEN a step with 3 ms of gaps, 1 of them in a call that asks nothing of the driver
    rows = (_launch(gap_ns=MS_NS), _asks_nothing(MS_NS, 0), _launch(gap_ns=MS_NS))

    # WHEN it takes 1.5 ms and the two launches without a profiler, the second after a pause
    cold_ns = call_ns("cuLaunchKernel", MS_NS)
    plan = make_plan(_trace(*rows, plain_step_ms=1.5 + (LAUNCH_NS + cold_ns) / MS_NS))

    assert plan.factors == pytest.approx([0.5])
    (step,) = plan.trace.steps
    assert [row.gap_ns for row in step] == pytest.approx([MS_NS, MS_NS / 2], abs=2)
    assert [row.driver_call for row in step] == ["cuLaunchKernel"] * 2


def test_a_step_may_begin_with_what_asks_nothing_of_the_driver() -> None:
    (step,) = make_plan(_trace(_asks_nothing(10, 20), _launch(), plain_step_ms=1)).trace.steps

    assert [row.driver_call for row in step] == [None, "cuLaunchKernel"]


def test_a_synchronisation_waits_for_the_work_of_its_stream_alone() -> None:
    rows = [_launch(50_000, stream=1), _launch(10_000), _sync()]

    composed = compose(rows, 1.0, 0)

    # The second launch is called once the first one has returned.
    waits_ns = LAUNCH_NS + REACH_NS + 10_000 - 2 * LAUNCH_NS
    assert composed.calls_ns == 2 * LAUNCH_NS + SYNC_NS
    behind_ns = 60_000 - (composed.calls_ns + waits_ns)
    assert composed.waits_ns == waits_ns + behind_ns


def test_a_copy_from_pageable_memory_waits_until_it_is_done() -> None:
    def waits_ns(copy: str) -> float:
        row = Row("cudaMemcpyAsync", 0, 100_000, COPIES[copy], gpu_ns=800, bytes=8, copy=copy)
        return compose([_launch(20_000), row], 1.0, 0).waits_ns

    assert waits_ns("pinned to device") == 0
    assert waits_ns("pageable to device") == REACH_NS + 20_000 + 800 - LAUNCH_NS


def test_a_wait_for_an_event_is_for_what_was_launched_before_it() -> None:
    record = Row("cudaEventRecord", 0, 0, "cuEventRecord", event=3)
    wait = Row("cudaEventSynchronize", 0, 500_000, "cuEventSynchronize", event=3)

    composed = compose([_launch(20_000), record, _launch(300_000), wait], 1.0, 0)

    before_ns = 2 * LAUNCH_NS + call_ns("cuEventRecord")
    assert composed.waits_ns == REACH_NS + 20_000 - before_ns


def test_where_the_gpu_holds_the_program_up_its_gaps_stay() -> None:
    graph = Row("cudaGraphLaunch", 0, 50_000, "cuGraphLaunch")
    fill = Row("cudaMemsetAsync", 0, 0, "cuMemsetD8Async", gpu_ns=100_000, bytes=4)
    nodes = (_launch(300_000), fill, _launch(400_000))

    plan = make_plan(_trace(graph, plain_step_ms=1, nodes=nodes))

    assert plan.factors == (1.0,)
    # 0.1 ms passes at each kernel, to make up the plain step
    assert [row.gpu_ns for row in plan.trace.nodes] == [400_000, 100_000, 500_000]
    assert (plan.gpu_ns, plan.sync_steps) == (900_000, 10)


def test_every_driver_call_of_a_program_has_its_cost() -> None:
    driver_calls = {call for call, _ in CALLS.values() if call} | set(COPIES.values())

    assert all(call_ns(call) > 0 for call in driver_calls)
    assert call_ns("cuMemsetD8Async") == 961
    assert call_ns("cuLaunchCooperativeKernel") == LAUNCH_NS


def test_the_script_has_a_line_for_each_driver_call() -> None:
    wait = Row("cudaStreamWaitEvent", 0, 0, "cuStreamWaitEvent", 2, event=4)
    copy = Row("cudaMemcpyAsync", 0, 7, "cuMemcpyHtoDAsync", bytes=9, copy="pageable to device")

    lines = script(make_plan(_trace(_launch(), wait, copy, plain_step_ms=1))).splitlines()

    assert lines[:7] == [
        "trace 1",
        "kinds 1",
        "streams 3",
        "events 5",
        "bytes 9",
        "sync_steps 0",
        "step 3",
    ]
    assert lines[7] == "cuLaunchKernel 0 0 1 32 0 1000 0"
    assert lines[8] == "cuStreamWaitEvent 2 4 0 0 0 0 0"
    assert re.fullmatch(r"cuMemcpyHtoDAsync-pageable 0 0 0 0 9 0 \d+", lines[9])


def test_a_form_of_the_test_is_read(tmp_path: Path) -> None:
    trace = read_trace(_write(tmp_path / "p.json.gz", _form()))

    assert trace.steps[1][1] == Row(
        "cudaMemcpyAsync", 1, 2, "cuMemcpyDtoHAsync", gpu_ns=5, bytes=8, copy="device to pinned"
    )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file"),
        (b"{}", "Not a gzipped file"),
        (gzip.compress(b"{}" * 1000, mtime=0)[:-9], "Compressed file ended"),
        (gzip.compress(b"{", mtime=0), "JSONDecodeError"),
        (gzip.compress(b'{"form": 2}', mtime=0), "is of form 2, and this player knows 1"),
        (gzip.compress(b'{"form": 1}', mtime=0), "KeyError 'steps'"),
    ],
)
def test_a_file_that_holds_no_trace_is_named(
    content: bytes | None, why: str, tmp_path: Path
) -> None:
    path = tmp_path / "p.json.gz"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(VgpuError, match=f"^{re.escape(str(path))}: .*{re.escape(why)}"):
        read_trace(path)


def _window(*said: float) -> PlayedWindow:
    return PlayedWindow((Played(*said),), Window((50.0,), (None,), ()))


def test_a_count_takes_the_first_programs_and_the_pair_once_both_are_there() -> None:
    assert playback.cases_of(None) == [*((name,) for name in PROGRAMS), PAIR]
    assert playback.cases_of(1) == [("decode",)]
    assert playback.cases_of(2) == [("decode",), ("gpt",), PAIR]


def test_what_the_shim_leaves_is_told_as_a_part_of_the_same_round() -> None:
    bare = [_window(60.0, 20.0, 0.0), _window(50.0, 20.0, 0.5)]
    held = [_window(54.0, 30.0, 40.0), _window(45.0, 30.0, 0.0)]

    found = playback.summarise(["gpt"], Kept(bare, {OURS: held}), {"gpt": 63.2}, [OURS])

    values = {(m.subject, m.quantity, m.unit): m.value for m in found}
    h100 = "H100, 2026-11-22"
    assert values == {
        ("none", "steps", "steps/s"): 55.0,
        (h100, "steps", "steps/s"): 63.2,
        ("none", "steps", "of the H100"): 0.87,
        ("none", "p99 of a step", "ms"): 20.0,
        (h100, "steps at 90 %", "of bare"): 0.88,
        (OURS, "steps at 90 %", "of bare"): 0.9,
        (OURS, "p99 of a step at 90 %", "ms"): 30.0,
    }
    told = [m for m in found if m.quantity.startswith("steps") and m.subject != h100]
    assert all(m.note.startswith("simulated") for m in told)
    busy = "simulated; other programs had the processor for up to 40 % of the time"
    assert [m.subject for m in found if m.note == busy] == [OURS]


def test_a_failure_under_the_shim_is_told_and_nothing_else_of_it() -> None:
    kept = Kept([_window(60.0, 20.0, 0.0)], {}, {OURS: "it crashed"})

    found = playback.summarise(["gpt"], kept, {"gpt": 63.2}, [OURS])

    assert [(m.value, m.note) for m in found if m.subject == OURS] == [(None, "it crashed")]


def test_the_costs_of_calls_are_those_of_the_calibration() -> None:
    """They are read without what reads YAML, since a machine with a GPU may have no such thing."""
    silicon = find_calibration("h100")
    costs = dict(zip(call_names(), silicon.call_ns, strict=True))
    made = {call for call, _ in CALLS.values() if call} | set(COPIES.values())
    kept = {"cuMemsetD8Async": "cuMemsetAsync", "cuLaunchCooperativeKernel": "cuLaunchKernel"}
    from_calibration = {call for call in made if kept.get(call, call) in costs}

    assert silicon.latency_ns == REACH_NS
    assert len(from_calibration) > 10
    assert {call: call_ns(call) for call in from_calibration} == {
        call: costs[kept.get(call, call)] for call in from_calibration
    }
    assert all(call_ns(call) > 0 for call in made)
    cold = dict(zip(call_names(), silicon.cold_call_ns, strict=True))
    for since_ns, part in ((silicon.cold_after_ns, 0), (silicon.cold_after_ns + 1, 1)):
        assert {call: call_ns(call, since_ns) for call in from_calibration} == {
            call: costs[kept.get(call, call)] + part * cold[kept.get(call, call)]
            for call in from_calibration
        }
