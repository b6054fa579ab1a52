"""The order in which the waiting processes of one container are served."""

from typing import Any

import pytest

from libvgpu._native import ffi, lib

MS = 1_000_000
NOW_NS = 5_000 * MS
DEVICE = 1


@pytest.fixture
def usage() -> Any:
    """A `usage` file of two devices in which three slots were used."""
    image = ffi.new("unsigned char[]", lib.usage_file_bytes(2))
    lib.usage_format(image, 2, b"tenant")
    ffi.cast("struct vgpu_usage_header *", image).hi_slot = 3
    return image


def behind(usage: Any, slot: int, since_ns: int, now_ns: int = NOW_NS) -> bool:
    return bool(lib.arrival_is_behind(usage, DEVICE, slot, since_ns, now_ns))


def wait(usage: Any, slot: int, since_ns: int, until_ns: int = NOW_NS + 10 * MS) -> None:
    lib.arrival_wait(usage, DEVICE, slot, since_ns, until_ns)


def test_alone_nobody_is_before_us(usage: Any) -> None:
    assert not behind(usage, 0, NOW_NS)

    wait(usage, 0, NOW_NS - MS)

    assert not behind(usage, 0, NOW_NS - MS)


def test_who_came_first_goes_first(usage: Any) -> None:
    wait(usage, 2, NOW_NS - 3 * MS)
    wait(usage, 0, NOW_NS - 2 * MS)

    assert behind(usage, 0, NOW_NS - 2 * MS)
    assert behind(usage, 1, NOW_NS), "one that comes now is behind all that wait"
    assert not behind(usage, 2, NOW_NS - 3 * MS)

    lib.arrival_leave(usage, DEVICE, 2)

    assert not behind(usage, 0, NOW_NS - 2 * MS)
    assert behind(usage, 1, NOW_NS)


def test_of_two_that_came_at_once_one_goes(usage: Any) -> None:
    for slot in (0, 2):
        wait(usage, slot, NOW_NS - MS)

    assert [behind(usage, slot, NOW_NS - MS) for slot in (0, 2)] == [False, True]


def test_one_that_was_killed_or_stopped_holds_nobody_up_for_long(usage: Any) -> None:
    wait(usage, 2, NOW_NS - MS, until_ns=NOW_NS + 10 * MS)

    assert behind(usage, 0, NOW_NS, NOW_NS + 14 * MS)
    assert not behind(usage, 0, NOW_NS, NOW_NS + 10 * MS + lib.ARRIVAL_GRACE_NS)


def test_the_last_word_of_the_dead_does_not_outlive_that_of_others(usage: Any) -> None:
    wait(usage, 2, NOW_NS - MS, until_ns=NOW_NS + MS)
    wait(usage, 0, NOW_NS, until_ns=NOW_NS + 20 * MS)
    later_ns = NOW_NS + MS + lib.ARRIVAL_GRACE_NS

    assert behind(usage, 1, later_ns, later_ns)
    assert not behind(usage, 0, NOW_NS, later_ns)


def test_garbage_holds_nobody_up(usage: Any) -> None:
    wait(usage, 2, 1, until_ns=1 << 62)

    assert not behind(usage, 0, NOW_NS)


def test_the_other_device_has_its_own_order(usage: Any) -> None:
    wait(usage, 2, NOW_NS - MS)

    assert not lib.arrival_is_behind(usage, 0, 0, NOW_NS, NOW_NS)


def test_who_was_served_goes_on_for_a_moment(usage: Any) -> None:
    def turns(now_ns: int) -> list[int]:
        return [lib.arrival_served(usage, DEVICE, slot, now_ns) for slot in (0, 2)]

    assert turns(NOW_NS) == [lib.ARRIVAL_NOBODY] * 2
    wait(usage, 2, NOW_NS - MS)

    lib.arrival_serve(usage, DEVICE, 2, NOW_NS)

    assert not behind(usage, 0, NOW_NS), "it waits no more"
    assert turns(NOW_NS) == [lib.ARRIVAL_OTHER, lib.ARRIVAL_OWN]
    assert turns(NOW_NS + lib.ARRIVAL_SERVED_NS - 1) == [lib.ARRIVAL_OTHER, lib.ARRIVAL_OWN]
    assert turns(NOW_NS + lib.ARRIVAL_SERVED_NS) == [lib.ARRIVAL_NOBODY] * 2


def test_a_turn_of_the_future_is_nobodys(usage: Any) -> None:
    lib.arrival_serve(usage, DEVICE, 2, NOW_NS)

    assert lib.arrival_served(usage, DEVICE, 0, NOW_NS - MS) == lib.ARRIVAL_NOBODY
