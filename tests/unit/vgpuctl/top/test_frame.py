"""The lines of `vgpuctl top`'s screen."""

from dataclasses import replace

import pytest

from vgpuctl.fitting import width as text_width
from vgpuctl.top.frame import (
    Look,
    SortKey,
    TopGpu,
    Wanted,
    fitted,
    gpu_lines,
    ordered,
    plain,
    sparkline,
    table,
)
from vgpuctl.top.rates import TopRow

GIB = 1 << 30
GPUS = {"GPU-a": TopGpu("0", "NVIDIA A100", 80 * GIB), "GPU-b": TopGpu("1", "NVIDIA T4", 0)}
ROWS = [
    TopRow("1", "team/first/c", "running", "GPU-a", "vgpu", GIB, 8 * GIB, (0.1,), 30, 28.0,
           held_percent=12, mode="windows", processes=2),
    TopRow("2", "team/second/c", "idle", "GPU-b", "mps", 7 * GIB, 7 * GIB, (1.0,), 50, None,
           refused=4, refused_lately=1),
    TopRow("3", "other/third/c", "running", "GPU-a", "vgpu", 0, GIB, (0.0,), 5, 3.0,
           mode="windows"),
]  # fmt: skip


def test_several_nodes_have_a_column_and_a_word_of_their_own() -> None:
    gpus = {"GPU-a": TopGpu("0", "A100", 0, "gpu-1"), "GPU-b": TopGpu("0", "T4", 0, "gpu-12")}
    rows = [replace(row, node=gpus[row.gpu_uuid].node) for row in ROWS]
    assert [plain(line).split()[:3] for line in gpu_lines(rows, gpus)] == [
        ["gpu-1", "GPU", "0"],
        ["gpu-12", "GPU", "0"],
    ]
    heading, *lines = map(plain, table(rows, gpus, Wanted(), 200))
    assert heading.split()[:3] == ["SLICE", "NODE", "GPU"]
    assert [line.split()[1] for line in lines] == ["gpu-1", "gpu-12", "gpu-1"]
    assert [row.who for row in ordered(rows, Wanted(text="gpu-12"), gpus)] == ["team/second/c"]
    assert "NODE" not in plain(table(ROWS, GPUS, Wanted(), 200)[0])


def test_a_sparkline_is_as_wide_as_told_and_ends_with_the_latest() -> None:
    assert sparkline([0.0, 0.5, 1.0], 5) == "   ▄█"
    assert sparkline([0.1] * 20, 4) == "▁▁▁▁"
    assert sparkline([7.0, -1.0], 2) == "█ "


@pytest.mark.parametrize(
    ("sort", "names"),
    [
        (SortKey.SHARE, ["first", "third", "second"]),
        (SortKey.MEMORY, ["second", "first", "third"]),
        (SortKey.NAME, ["third", "first", "second"]),
        (SortKey.REFUSED, ["second", "third", "first"]),
        (SortKey.HELD, ["first", "third", "second"]),
        (SortKey.GPU, ["third", "first", "second"]),
    ],
)
def test_rows_come_in_the_order_that_is_wanted(sort: SortKey, names: list[str]) -> None:
    found = ordered(ROWS, Wanted(sort), GPUS)
    assert [row.who.split("/")[1] for row in found] == names
    again = ordered(ROWS, Wanted(sort, is_reversed=True), GPUS)
    assert [row.who.split("/")[1] for row in again] == names[::-1]


def test_a_filter_looks_into_name_family_and_state() -> None:
    assert [row.allocation_id for row in ordered(ROWS, Wanted(text="TEAM"), GPUS)] == ["1", "2"]
    assert [row.allocation_id for row in ordered(ROWS, Wanted(text="mps"), GPUS)] == ["2"]
    assert ordered(ROWS, Wanted(text="nobody"), GPUS) == []


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160, 300])
def test_no_line_is_wider_than_the_screen_but_what_must_be_seen_stays(width: int) -> None:
    lines = [plain(line) for line in table(ROWS, GPUS, Wanted(), max(width, 64))]
    assert all(len(line) <= max(width, 64) for line in lines)
    assert "MEMORY" in lines[0]
    assert "SHARE" in lines[0]
    assert len(lines) == 4


def test_a_wide_screen_has_every_column() -> None:
    heading = plain(table(ROWS, GPUS, Wanted(), 200)[0])
    for title in ("SLICE", "GPU", "HELD", "WINDOWS/s", "REFUSED", "PROCS", "MODE", "STATE"):
        assert title in heading


def test_a_slice_at_its_limit_and_a_fresh_refusal_stand_out() -> None:
    line = table(ROWS, GPUS, Wanted(), 200)[2]
    assert {span.text.strip() for span in line if span.look is Look.HIGH} == {
        "7 GiB / 7 GiB",
        "4 (+1)",
    }


def test_what_is_scrolled_away_is_not_drawn() -> None:
    lines = [plain(line) for line in table(ROWS, GPUS, Wanted(first=1), 200, height=2)]
    assert len(lines) == 2
    assert "second" in lines[1]


def test_a_gpu_says_what_is_given_and_used() -> None:
    first, second = (plain(line) for line in gpu_lines(ROWS, GPUS))
    assert "1 GiB used, 9 GiB given of 80 GiB" in first
    assert "core 35% given, 31% used" in first
    assert "2 slices, windows" in first
    assert "7 GiB given of ?" in second


def test_a_gpu_that_only_a_slice_names_has_a_line() -> None:
    assert plain(gpu_lines(ROWS[:1], {})[0]).startswith("GPU GPU-a")


@pytest.mark.parametrize("width", [40, 61, 80, 200])
def test_the_line_of_a_gpu_loses_whole_parts(width: int) -> None:
    whole = gpu_lines(ROWS, GPUS)[0]
    line = fitted(whole, width)

    assert len(plain(line)) <= width or len(line) == 2
    assert plain(line).startswith("GPU 0")
    assert all(span in whole for span in line)
    assert (len(line) == len(whole)) == (width == 200)


@pytest.mark.parametrize("width", [64, 100, 160])
def test_wide_characters_count_as_the_terminal_shows_them(width: int) -> None:
    wide = [ROWS[0], replace(ROWS[1], who="python 訓練スクリプト/日本語/日本語日本語日本語.py")]
    lines = [plain(line) for line in table(wide, GPUS, Wanted(), width)]

    assert all(text_width(line) <= width for line in lines)
    shares = [text_width(line[: line.rindex(" / ")]) for line in lines[1:]]
    assert shares[0] == shares[1]
