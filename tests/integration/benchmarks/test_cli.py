"""The figure of `vgpuctl` takes what it says, and notices a command that shows too little."""

from dataclasses import replace

import pytest

from benchmarks import cli, full_node
from benchmarks.figure import Options, judge
from libvgpu.errors import VgpuError

#: A core may be shared with somebody's test.
SLACK = 5.0
OPTIONS = Options(None, rounds=1, seconds=1.0, count=3)


@pytest.mark.timing
def test_the_figure_has_both_bars_with_the_agent_and_without_it() -> None:
    found = cli.measure(OPTIONS)
    assert {each.case for each in found} == {"3 slices, agent running", "3 slices, agent stopped"}
    assert all(each.value is not None and each.value > 0 for each in found)
    judged = [(each.quantity, each.most) for each in found if each.most is not None]
    assert judged == 2 * [
        ("ps, from start to end", 250.0),
        ("ps -o json, from start to end", 250.0),
        ("ps on a terminal of 120 columns, from start to end", 250.0),
        ("top at 1 Hz, processor", 2.0),
    ]
    assert all(each.value <= each.most * SLACK for each in found if each.most and each.value)
    slow = [replace(each, value=1000.0) for each in found]
    assert len(judge(slow)) == len(judged)


def test_a_listing_that_lacks_slices_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cli._ANSWERS, "ps", cli._ANSWERS["an empty Python"])
    with pytest.raises(VgpuError, match="ps shows 0 of 1 slices"):
        cli.measure(replace(OPTIONS, count=1))


@pytest.mark.parametrize("count", [0, full_node.MOST_SLICES + 1])
def test_more_slices_than_fit_are_refused(count: int) -> None:
    with pytest.raises(VgpuError, match=f"{count} slices are not possible"):
        cli.measure(replace(OPTIONS, count=count))
