"""DP_DISABLE_HEALTHCHECKS and DP_ENABLE_HEALTHCHECKS in each of their forms."""

import pytest

from deviceplugin.inventory.counted_xids import DISABLE, ENABLE, CountedXids, counted_xids
from deviceplugin.inventory.health import IGNORED_XIDS

FELL_OFF, DOUBLE_BIT_ERROR, PAGE_FAULT = 79, 48, 31


def read(disable: str | None = None, enable: str | None = None) -> CountedXids:
    said = {DISABLE: disable, ENABLE: enable}
    found, problems = counted_xids({k: v for k, v in said.items() if v is not None})
    assert problems == []
    return found


def counted(xids: CountedXids) -> list[int]:
    return [xid for xid in (PAGE_FAULT, DOUBLE_BIT_ERROR, FELL_OFF) if xids.counts(xid)]


@pytest.mark.parametrize("xid", sorted(IGNORED_XIDS))
def test_errors_of_programs_do_not_count(xid: int) -> None:
    assert not read().counts(xid)
    assert not read(disable="79").counts(xid)


@pytest.mark.parametrize("value", [None, "", " ", ",", " , "])
def test_nothing_said_is_the_usual(value: str | None) -> None:
    assert counted(read(value, value)) == [DOUBLE_BIT_ERROR, FELL_OFF]
    assert read(value, value) == CountedXids()


@pytest.mark.parametrize("value", ["48", "48,", " 48 ,48", "48,31"])
def test_disabled_xids_do_not_count(value: str) -> None:
    assert counted(read(disable=value)) == [FELL_OFF]
    assert read(disable=value).is_watched


@pytest.mark.parametrize("value", ["xids", "XIDS", "48, xids", "xids,79"])
def test_xids_disables_all_of_them_and_health_is_still_watched(value: str) -> None:
    assert counted(read(disable=value)) == []
    assert read(disable=value).is_watched


@pytest.mark.parametrize("value", ["all", "All", "48,all", " all ", "xids,all"])
def test_all_turns_the_watch_off(value: str) -> None:
    assert counted(read(disable=value)) == []
    assert not read(disable=value).is_watched


def test_an_enabled_xid_counts_although_programs_cause_it() -> None:
    assert counted(read(enable="31")) == [PAGE_FAULT, DOUBLE_BIT_ERROR, FELL_OFF]


def test_an_enabled_xid_counts_although_it_is_disabled() -> None:
    assert counted(read(disable="48,79", enable="79")) == [FELL_OFF]


@pytest.mark.parametrize("disable", ["all", "xids"])
def test_single_xids_can_be_left_of_all(disable: str) -> None:
    xids = read(disable, "79,31")

    assert counted(xids) == [PAGE_FAULT, FELL_OFF]
    assert xids.is_watched


@pytest.mark.parametrize("enable", ["all", "xids", "79,all"])
@pytest.mark.parametrize("disable", [None, "48", "all"])
def test_all_enabled_counts_whatever_is_said(disable: str | None, enable: str) -> None:
    xids = read(disable, enable)

    assert counted(xids) == [PAGE_FAULT, DOUBLE_BIT_ERROR, FELL_OFF]
    assert xids.is_watched


@pytest.mark.parametrize("word", ["none", "0", "-1", "4.8", "xid79", "4 8", "٤", "1" * 4301])
@pytest.mark.parametrize("name", [DISABLE, ENABLE])
def test_a_word_that_is_no_xid_is_left_out_and_said(name: str, word: str) -> None:
    found, (problem,) = counted_xids({name: f"48,{word}"})

    assert found == counted_xids({name: "48"})[0]
    assert problem == (
        f"{name} names {word!r}, which is not an XID and is ignored; allowed are all, xids, and "
        "numbers above 0 separated by commas"
    )
