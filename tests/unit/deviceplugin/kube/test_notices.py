"""Which log lines become Events, and that equal ones are counted up and many are bounded."""

import logging

import pytest

from deviceplugin.kube.notices import (
    BURST,
    MOST_TEXT,
    WINDOW_S,
    Aggregator,
    LogTap,
    Notice,
    notice_of,
)
from deviceplugin.log import LOGGER, event

GIB = 1 << 30


def notice(text: str = "no") -> Notice:
    return Notice("Pod", "a", "b", "SliceStartRefused", text, True)


def test_a_refusal_is_told_of_the_node() -> None:
    fields = {"method": "Allocate", "resource": "nvidia.com/vgpu-core", "reason": "not free"}

    assert notice_of("refused", fields, "n1") == Notice(
        "Node", "", "n1", "SliceRefused", "not free", True
    )
    assert notice_of("refused", fields | {"method": "PreStartContainer"}, "n1") is None


def test_a_refused_start_is_told_of_the_pod_once_it_is_known() -> None:
    fields = {"owner": "team-a/pod/main", "reason": "two GPUs"}

    assert notice_of("start refused", fields, "n1") == Notice(
        "Pod", "team-a", "pod", "SliceStartRefused", "container main: two GPUs", True
    )
    unknown = notice_of("start refused", fields | {"owner": "unknown"}, "n1")
    assert unknown == Notice("Node", "", "n1", "SliceStartRefused", "two GPUs", True)


def test_a_changed_limit_is_told_of_the_pod_with_old_new_and_cause() -> None:
    fields = {
        "owner": "team-a/pod/main",
        "memory_bytes": f"{8 * GIB}->{4 * GIB}",
        "core_percent": "40->20",
        "cause": "limits[0] on line 3",
        "pending": "core 40 to 20",
    }

    told = notice_of("limits changed", fields, "n1")

    assert told == Notice(
        "Pod",
        "team-a",
        "pod",
        "SliceLimitsChanged",
        "container main: GPU memory 8 GiB to 4 GiB, compute 40% to 20%, by limits[0] on line 3; "
        "when its processes start again: core 40 to 20",
        False,
    )
    assert notice_of("limits changed", fields | {"owner": "unknown"}, "n1") is None
    mode = notice_of("limits changed", fields | {"compute": "strict->elastic"}, "n1")
    assert mode is not None and "compute 40% to 20% held strict to elastic, by" in mode.text
    same = notice_of("limits changed", fields | {"compute": "strict->strict"}, "n1")
    assert same is not None and "held" not in same.text


def test_memory_beside_a_slice_is_told_of_its_pod() -> None:
    fields = {"owner": "ns/pod/c", "gpu": "GPU-1"}

    more = notice_of("memory beside the ledger", fields | {"bytes": f"0->{GIB}"}, "n1")
    gone = notice_of("memory beside the ledger is gone", fields | {"bytes": f"{GIB}->0"}, "n1")

    assert more == Notice(
        "Pod",
        "ns",
        "pod",
        "MemoryBesideSlice",
        "container c: its processes hold 1 GiB of GPU GPU-1 beside its ledger (0 B before); this "
        "is charged to its slice",
        True,
    )
    text = "container c: its processes hold nothing of GPU GPU-1 beside its ledger any more"
    assert gone == Notice("Pod", "ns", "pod", "MemoryBesideSliceGone", text, False)


def test_who_bypasses_is_told_of_its_pod_and_a_stranger_of_the_node() -> None:
    process = {"gpu": "GPU-1", "pid": 7, "command": "x", "bytes": 2 * GIB}
    mine = {"owner": "ns/pod/c", "allocation": "a", **process}

    bypass = notice_of("process bypasses its slice", mine, "n1")
    ended = notice_of("process ended: it bypassed its slice", mine, "n1")
    foreign = notice_of("process of no allocation uses a GPU", process | {"bytes": "unknown"}, "n1")
    blind = notice_of("the watch beside the shim sees nothing", {"reason": "no pids"}, "n1")

    seen = "process 7 (x) uses 2 GiB of GPU GPU-1 without the shim, beside its slice"
    assert bypass == Notice("Pod", "ns", "pod", "SliceBypassed", f"container c: {seen}", True)
    text = f"container c: {seen}, and was ended"
    assert ended == Notice("Pod", "ns", "pod", "BypassingProcessEnded", text, True)
    text = "process 7 (x) uses memory of GPU GPU-1, and belongs to no container with a slice"
    assert foreign == Notice("Node", "", "n1", "ForeignGpuProcess", text, True)
    assert blind == Notice("Node", "", "n1", "WatchBlind", "no pids", True)


def test_a_gpu_that_is_unwell_is_told_of_the_node_and_that_it_is_well_again() -> None:
    unwell = notice_of(
        "GPU unwell: nothing of it is offered", {"gpu": "GPU-1", "reason": "XID 79"}, "n1"
    )
    well = notice_of("GPU well again", {"gpu": "GPU-1"}, "n1")

    text = "GPU GPU-1 is not well, so nothing of it is offered: XID 79"
    assert unwell == Notice("Node", "", "n1", "GpuUnwell", text, True)
    assert well == Notice("Node", "", "n1", "GpuWellAgain", "GPU GPU-1 is well again", False)


def test_a_gpu_that_drains_is_told_of_the_node_and_what_it_becomes() -> None:
    fields = {"gpu": "GPU-0", "slices": 2, "now": "mps by units of 1 GiB", "then": "not shared"}
    drains = notice_of("GPU drains: its sharing changes when its slices have ended", fields, "n1")
    shared = notice_of("sharing in force", {"gpu": "GPU-0", "now": "not shared"}, "n1")
    left_out = notice_of("a part of the config is left out", {"reason": "GPU 7 …"}, "n1")

    text = "GPU GPU-0 is mps by units of 1 GiB until 2 slices have ended, then not shared"
    assert drains == Notice("Node", "", "n1", "GpuDrains", text, False)
    assert shared == Notice("Node", "", "n1", "GpuSharing", "GPU GPU-0 is not shared", False)
    assert left_out == Notice("Node", "", "n1", "ConfigLeftOut", "GPU 7 …", True)


def test_other_lines_stay_in_the_log_and_text_is_bounded() -> None:
    assert notice_of("allocated", {"reason": "x"}, "n1") is None
    long = notice_of("refused", {"reason": "x" * 5000}, "n1")
    assert long is not None and len(long.text) == MOST_TEXT


def test_equal_ones_within_a_window_are_one_event_that_is_counted_up() -> None:
    aggregator = Aggregator()
    first = aggregator.add(notice(), 10.0)
    assert first is not None and first.count == 1
    assert aggregator.add(notice(), 20.0) is None
    assert aggregator.add(notice(), 30.0) is None
    assert aggregator.due(10.0 + WINDOW_S - 0.1) == []
    assert aggregator.next_due() == 10.0 + WINDOW_S

    assert aggregator.due(10.0 + WINDOW_S) == [first]

    assert (first.count, first.first_at, first.last_at) == (3, 10.0, 30.0)
    assert aggregator.next_due() is None
    again = aggregator.add(notice(), 80.0)
    assert again is not None and again.name != first.name


def test_one_that_came_once_is_told_once() -> None:
    aggregator = Aggregator()
    aggregator.add(notice(), 10.0)

    assert aggregator.due(10.0 + WINDOW_S) == []


def test_a_flood_of_different_ones_is_bounded() -> None:
    aggregator = Aggregator()

    told = [aggregator.add(notice(str(n)), 10.0) for n in range(10 * BURST)]
    later = [aggregator.add(notice(f"later {n}"), 12.0) for n in range(BURST)]

    assert sum(record is not None for record in told) == BURST
    assert sum(record is not None for record in later) == 1  # 0.5 a second
    assert aggregator.dropped == 9 * BURST + BURST - 1


def test_the_tap_takes_lines_and_a_line_of_another_form_fails_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    taken: list[Notice] = []
    tap = LogTap("n1", taken.append)
    LOGGER.addHandler(tap)
    try:
        event(logging.WARNING, "limits changed", owner="a/b/c", memory_bytes="none")
        event(logging.WARNING, "refused", method="Allocate", reason="x")
    finally:
        LOGGER.removeHandler(tap)

    assert [n.text for n in taken] == ["x"]
