"""That the tap takes notices only, that equal ones are counted up and that many are bounded."""

import logging

from deviceplugin.kube.notices import BURST, WINDOW_S, Aggregator, NoticeTap
from deviceplugin.log import LOGGER, event
from deviceplugin.model.allocations import Owner
from deviceplugin.model.notices import EventReason, Notice, node_notice


def notice(text: str = "no") -> Notice:
    return Notice(EventReason.CONTAINER_START_REFUSED, text, Owner("a", "b", "c"))


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


def test_the_tap_takes_what_is_attached_and_reads_no_line() -> None:
    taken: list[Notice] = []
    tap = NoticeTap(taken.append)
    told = node_notice(EventReason.ALLOCATION_REFUSED, "not free")
    LOGGER.addHandler(tap)
    try:
        event(logging.WARNING, "request refused", reason="a line alone is no Event")
        event(logging.WARNING, "anything at all", notice=told, reason="another text")
        LOGGER.warning("a line of the plain logger", extra={"notice": "not typed"})
    finally:
        LOGGER.removeHandler(tap)

    assert taken == [told]
