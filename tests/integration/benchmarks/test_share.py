"""The figures of shares: what is judged, what is covered, and that a wrong controller is caught."""

import importlib
import importlib.util
import itertools
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import plot, share, share_contended, share_response, stage
from benchmarks.figure import Measurement, Options, judge
from benchmarks.plot import Curve
from benchmarks.repeats import MS, OURS, ROUNDS, US, Results, curves_of, lengths
from benchmarks.share import Cell
from benchmarks.stage import open_stage
from benchmarks.tenant_programs import TenantClient, TenantProgram, TenantReading, Window
from libvgpu import artifacts
from libvgpu.errors import UsageError, VgpuError
from libvgpu.limits import ComputeMode
from support.lines import next_line
from support.waiting import PATIENCE_S

MINUTE_SECONDS = 60
CLIENT = TenantClient(MS)
# The shim on a busy machine and in windows of half a second; the planted one is far beyond it.
LOOSE_POINTS = 4.0
NEEDS_BUILD = pytest.mark.skipif(
    not artifacts.SHIM_PATH.exists() or shutil.which("cc") is None,
    reason="libvgpu.so is not built (make build), or there is no C compiler",
)

# Lets so many blocks a second pass, as if every block took the same part of the device: right for
# 132 blocks in 1 ms, as its rate was chosen.
BY_BLOCK_COUNT = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
typedef int launch_fn(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      void *, void **, void **);
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *stream, void **params, void **extra)
{
    static launch_fn *real;
    static double free_at;
    if (real == NULL)
        real = (launch_fn *)dlsym(RTLD_NEXT, "cuLaunchKernel");
    double blocks_per_second = 132 * 1000 * atof(getenv("CUDA_DEVICE_SM_LIMIT")) / 100;
    while (now() < free_at) {
        double left = free_at - now();
        struct timespec t = {(time_t)left, (long)((left - (time_t)left) * 1e9)};
        if (left > 0)
            nanosleep(&t, NULL);
    }
    if (free_at < now() - 0.01)
        free_at = now();
    free_at += (double)gx * gy * gz / blocks_per_second;
    return real(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
}
"""


def _window(*found: float, p99_delay_ns: int | None = 0) -> Window:
    return Window(found, (p99_delay_ns,) * len(found), ())


def _judge_cell(cell: Cell, windows: Sequence[Window], alone: float = 100.0) -> list[str]:
    return judge(share.summarise(cell, OURS, Results(list(windows)), alone))


# ---- judging -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "least", "most", "missed"),
    [
        (0.3, None, 0.3, False),
        (0.301, None, 0.3, True),
        (0.985, 0.985, None, False),
        (0.984, 0.985, None, True),
        (None, None, 0.3, True),
        (None, None, None, False),
        (5.0, None, None, False),
    ],
)
def test_a_bar_is_missed_beyond_it_and_where_nothing_was_measured(
    value: float | None, least: float | None, most: float | None, missed: bool
) -> None:
    found = judge([Measurement("c", "s", "error", "points", value, least=least, most=most)])

    assert bool(found) == missed
    assert all("missed: c with s: error" in sentence for sentence in found)


def test_the_worst_of_the_repeats_is_held_against_the_bar() -> None:
    cell = Cell(25, CLIENT)

    assert _judge_cell(cell, [_window(25.0), _window(25.29), _window(24.71)]) == []
    (missed,) = _judge_cell(cell, [_window(25.0), _window(25.0), _window(24.69)])
    assert "0.31 points, must be ≤ 0.3" in missed


def test_two_processes_may_be_twice_as_far_off() -> None:
    assert _judge_cell(Cell(25, CLIENT, processes=2), [_window(25.59)]) == []
    assert _judge_cell(Cell(25, CLIENT, processes=2), [_window(25.61)])


def test_a_client_that_takes_less_alone_is_expected_to_have_that() -> None:
    cell = Cell(90, CLIENT)

    assert _judge_cell(cell, [_window(70.1)], alone=70.0) == []
    assert _judge_cell(cell, [_window(70.1)], alone=100.0)


def test_a_delay_is_judged_at_half_the_device_and_missed_where_nobody_told_it() -> None:
    cell = Cell(50, CLIENT)

    assert _judge_cell(cell, [_window(50.0, p99_delay_ns=29 * MS)]) == []
    assert _judge_cell(cell, [_window(50.0, p99_delay_ns=31 * MS)])
    (untold,) = share.summarise(cell, OURS, Results([_window(50.0, p99_delay_ns=None)]), 100.0)[-1:]
    assert untold.value is None and untold.note


def test_a_cell_that_failed_says_why() -> None:
    (found,) = share.summarise(Cell(50, CLIENT), OURS, Results(failure="it crashed"), 100.0)

    assert (found.value, found.note) == (None, "it crashed")


def _judge_contest(contest: share_contended.Contest, *found: float) -> list[str]:
    alone = {tenant.client: 98.0 for tenant in contest.tenants}
    return judge(share_contended.summarise(contest, OURS, Results([_window(*found)]), alone))


def test_a_split_is_of_the_work_that_was_done_and_total_work_of_alone() -> None:
    contest = share_contended.CONTESTS[0]  # 30/70
    assert _judge_contest(contest, 0.30 * 97, 0.70 * 97) == []

    assert len(_judge_contest(contest, 0.305 * 97, 0.695 * 97)) == 2  # both tenants
    (total,) = _judge_contest(contest, 0.30 * 96, 0.70 * 96)
    assert "total work" in total
    assert len(_judge_contest(contest, 0.0, 0.0)) == 3


def test_the_elastic_one_is_expected_to_have_the_rest_of_the_device() -> None:
    contest = share_contended.CONTESTS[-1]
    assert contest.rest
    assert _judge_contest(contest, 30.0, 68.0) == []

    assert _judge_contest(contest, 28.5, 69.0)
    assert _judge_contest(contest, 30.0, 30.0)


def test_slower_is_the_time_that_the_same_work_takes_longer() -> None:
    assert share_response.slower_percent(80.0, 100.0) == pytest.approx(25)
    assert share_response.slower_percent(0.0, 100.0) == float("inf")


# ---- what is covered, and how long it takes ------------------------------------------------------


def test_the_design_covers_what_it_says() -> None:
    cells = share.CELLS
    seen = {(c.core_percent, c.client.kernel_ns, c.client.sync > 0, c.client.blocks) for c in cells}
    percents, waits = (10, 25, 50, 75, 90), (False, True)

    assert len(cells) <= 16
    assert {(p, s) for p, _, s, _ in seen} == set(itertools.product(percents, waits))
    assert {(k, s) for _, k, s, _ in seen} == set(
        itertools.product((20 * US, MS, 20 * MS, 200 * MS), waits)
    )
    assert {(b, s) for _, _, s, b in seen} == set(itertools.product((132, 16_896), waits))
    assert {(p, b) for p, _, _, b in seen} == set(itertools.product(percents, (132, 16_896)))
    pairs = set(itertools.product(percents, (20 * US, MS, 20 * MS)))
    assert pairs - {(p, k) for p, k, _, _ in seen} == {(25, 20 * MS), (90, MS)}
    assert sum(c.client.kernel_ns >= 100 * MS for c in cells) == 2
    assert {c.client.form for c in cells} == {"kernel", "graph", "cooperative", "memset"}
    assert any(c.client.streams == 4 for c in cells) and any(c.processes == 2 for c in cells)


def test_the_figures_keep_to_their_time() -> None:
    long = lengths(Options(None, ROUNDS))

    assert (long.window_seconds, long.warm_up_seconds) == (10, 2)
    assert share.planned_seconds(share.CELLS, ROUNDS, long) <= 25 * MINUTE_SECONDS
    planned = share_contended.planned_seconds(share_contended.CONTESTS, ROUNDS, long)
    assert planned <= 10 * MINUTE_SECONDS


# ---- pictures ------------------------------------------------------------------------------------


def test_curves_are_the_shares_between_looks() -> None:
    second_ns = 10**9
    looks = tuple(
        TenantReading(second_ns * (5 + i), busy, (0, 0))
        for i, busy in enumerate(
            [(0, 0), (second_ns // 4, second_ns // 2), (second_ns // 2, second_ns // 2)]
        )
    )

    first, second = curves_of([Window((25.0, 25.0), (0, 0), looks)], ["a", "b"], [25.0, None])

    assert (first.tenant, first.seconds, first.share_percent) == (0, (1.0, 2.0), (25.0, 25.0))
    assert (second.label, second.share_percent) == ("b", (50.0, 0.0))


def test_without_matplotlib_nothing_is_measured_and_the_way_out_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    assert command.main(["run", "share", "--plot", str(tmp_path / "p")]) == 2

    told = capsys.readouterr().err
    assert "matplotlib" in told and "vgpu[plot]" in told
    assert "measuring" not in told


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="no matplotlib")
def test_a_cell_becomes_a_picture(tmp_path: Path) -> None:
    curves = [Curve(0, "a", (1.0, 2.0), (20.0, 30.0), 25.0), Curve(0, "a", (1.0,), (24.0,), 25.0)]

    path = plot.draw(tmp_path / "new", "share: 25 %, kernels of 20 µs", "simulated GPU", curves)

    assert path.name == "share-25-kernels-of-20-us.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        plot.draw(tmp_path / "file", "t", "simulated GPU", curves)


# ---- on the simulated device ---------------------------------------------------------------------


@NEEDS_BUILD
def test_a_client_that_cannot_begin_says_why() -> None:
    with open_stage() as opened, pytest.raises(VgpuError, match=r"status 2: argument 'form=none'"):
        opened.alone(TenantClient(MS, form="none"), 0.1, 0.1)


@NEEDS_BUILD
@pytest.mark.virtual
@pytest.mark.parametrize("form", ["kernel", "graph", "cooperative", "memset"])
def test_every_form_keeps_the_device_busy_without_a_shim(form: str) -> None:
    with (
        open_stage() as opened,
        opened.open([TenantProgram(TenantClient(MS, form))], None) as running,
    ):
        window = running.watch(0.2, 0.3)

    assert window.shares[0] > 95
    (first, *_, last) = window.looks
    kernels = last.launches[0] - first.launches[0]
    assert (kernels == 0) if form == "memset" else (kernels > 250)


@NEEDS_BUILD
def test_what_a_client_launched_is_what_it_says_it_completed() -> None:
    with (
        open_stage() as opened,
        opened.open([TenantProgram(CLIENT, 50)], artifacts.shim_path()) as running,
    ):
        running.go(0)
        running.watch(0.1, 0.2)
        (process,) = running.processes[0]
        (word, completed) = next_line(process).split()
        last = running.machine.books()[0].clients[0]

    assert word == "completed"
    assert last.launches == int(completed) > 50


@NEEDS_BUILD
def test_an_arbiter_serves_who_is_capped_under_our_shim_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # GIVEN an arbiter that only remembers what it was told
    told: list[object] = []

    class Remembering:
        def __enter__(self) -> "Remembering":
            told.append("begin")
            return self

        def __exit__(self, *error: object) -> None:
            told.append("end")

        def add(self, folder: Path, index: int) -> None:
            told.append((folder.name, index, (folder / "ring").is_fifo()))

    monkeypatch.setattr(stage, "Arbiter", Remembering)
    tenants = [
        TenantProgram(CLIENT, 30),
        TenantProgram(CLIENT, 100, ComputeMode.OFF),
        TenantProgram(CLIENT, 70),
    ]

    # WHEN tenants are opened with our shim, and some without it
    with open_stage() as opened:
        with opened.open(tenants, artifacts.shim_path()):
            pass
        with opened.open(tenants, None):
            pass

    # THEN it served the capped ones, once
    expected = ["begin", ("slice0", 0, True), ("slice2", 0, True), "end"]
    assert told == expected


@NEEDS_BUILD
@pytest.mark.timing
def test_a_short_run_of_the_command_tells_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(share, "CELLS", (Cell(50, CLIENT), Cell(25, CLIENT)))
    out = tmp_path / "out.json"

    status = command.main(
        ["run", "share", "share-contended", "--count", "1", "--rounds", "1", "--seconds", "0.5",
         "--json", str(out)]
    )  # fmt: skip

    assert status == 0
    figures = json.loads(out.read_text())["figures"]
    assert [figure["label"] for figure in figures] == ["simulated GPU"] * 2
    quantities = {(f["figure"], m["quantity"]) for f in figures for m in f["measurements"]}
    assert quantities == {
        ("share", "share, mean"),
        ("share", "share, mean error"),
        ("share", "share, worst error"),
        ("share", "time of a launch, p99, worst"),
        ("share-contended", "split, mean"),
        ("share-contended", "split, mean error"),
        ("share-contended", "split, worst error"),
        ("share-contended", "total work, worst"),
    }
    table = capsys.readouterr().out
    assert "≤ 0.3" in table and "simulated GPU" in table


@NEEDS_BUILD
@pytest.mark.timing
def test_a_controller_that_counts_blocks_is_caught_where_ours_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a rival that is right for few blocks of 1 ms, and looser bars for both
    source, planted = tmp_path / "planted.c", tmp_path / "planted.so"
    source.write_text(BY_BLOCK_COUNT)
    subprocess.run(
        ["cc", "-shared", "-fPIC", str(source), "-o", str(planted), "-ldl"],
        check=True,
        timeout=PATIENCE_S,
    )
    monkeypatch.setattr(share, "_ERROR_POINTS", LOOSE_POINTS)
    cells = (
        Cell(50, CLIENT),
        Cell(50, TenantClient(MS, blocks=16_896)),
        Cell(50, TenantClient(100 * US)),
    )

    # WHEN both are measured in one run
    found = share.measure_cells(cells, Options(planted, 1, 0.5))
    errors = [m for m in found if m.quantity == "share, worst error"]

    # THEN ours meets the bars everywhere, and the planted one only where its rate was chosen
    assert len(errors) == 2 * len(cells)
    assert judge([m for m in errors if m.subject == OURS]) == []
    missed = judge([m for m in errors if m.subject == planted.name])
    assert len(missed) == 2
    assert "16896 blocks" in missed[0] and "100 µs" in missed[1]
