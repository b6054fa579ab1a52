"""Sizes and percentages as people type them."""

import re
from fractions import Fraction

import pytest

from libvgpu.errors import UsageError
from libvgpu.sizes import (
    PERCENT_PATTERN,
    SIZE_PATTERN,
    Percent,
    Written,
    format_size,
    parse_percent,
    parse_size,
    whole_number,
)

MANY_DIGITS = "1" * 4301  # `int` refuses to read these
GIB, MIB = 1 << 30, 1 << 20

TAKEN = {
    "1GiB": GIB,
    "1Gi": GIB,
    "1gib": GIB,
    "1gi": GIB,
    "1GIB": GIB,
    "512 MiB": 512 * MIB,
    " 512Mi ": 512 * MIB,
    "4095GiB": 4095 * GIB,
    "1.5GiB": 3 * GIB // 2,
    ".5Gi": GIB // 2,
    "1.Gi": GIB,
    "1G": 10**9,
    "1GB": 10**9,
    "1.5T": 15 * 10**11,
    "1048577KB": 1_048_577_000,
    "1g": GIB,
    "1gb": GIB,
    "512m": 512 * MIB,
    "2048k": 2 * MIB,
    "4294967296B": 4 * GIB,
    "1048576b": MIB,
    "1.3333Gi": 1431619973,  # and a part of a byte
}


@pytest.mark.parametrize(("text", "count"), TAKEN.items())
def test_sizes_that_are_taken(text: str, count: int) -> None:
    assert parse_size(text) == count
    assert re.search(SIZE_PATTERN, text)


@pytest.mark.parametrize(
    "text",
    ["0", "0GiB", "-1", "-1Gi", "8 bananas", "", "GiB", "1Gb", "1Pi", "9999999GiB", "0x10", "1e9",
     "1e9Gi", "nan", "inf", "1_000Mi", "1,5Gi", "1Gi 2Gi", "٣Gi", "50%", "1048575B", "1023Ki", "6B",
     "9" * 5000 + "Gi"],
)  # fmt: skip
def test_sizes_that_are_refused_name_the_value_and_what_is_allowed(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_size(text, "--memory")

    said = refused.value.message
    assert said.startswith(f"--memory {text[:40]!r}")
    assert any(word in said for word in ("give ", "at most ", "the least is 1Mi"))
    assert len(said) < 250


@pytest.mark.parametrize(
    ("written", "likely"),
    [
        ("6", "6 means bytes here; did you mean 6Gi?"),
        (6, "did you mean 6Gi?"),
        (1.5, "did you mean 1.5Gi?"),
        ("160 ", "did you mean 160Gi?"),
        ("8192", "did you mean 8192Mi or 8192Gi?"),
        ("4294967296", "did you mean 4Gi, or 4294967296B for bytes?"),
        ("4294967297", "did you mean 4294967297B?"),
    ],
)
def test_a_bare_number_is_refused_with_what_was_meant(written: Written, likely: str) -> None:
    with pytest.raises(UsageError, match="has no unit") as refused:
        parse_size(written)

    assert likely in refused.value.message
    assert not re.search(SIZE_PATTERN, str(written))


def test_what_an_earlier_version_took_can_still_be_read() -> None:
    assert parse_size("6", may_be_bare=True) == 6
    assert parse_size(4294967296, may_be_bare=True) == 4 * GIB
    with pytest.raises(UsageError, match="is nothing"):
        parse_size(0, may_be_bare=True)


@pytest.mark.parametrize("text", ["0", "0Gi", " 0 MiB", 0, 0.0])
def test_nothing_is_a_size_where_it_has_a_meaning(text: Written) -> None:
    assert parse_size(text, may_be_zero=True) == 0
    with pytest.raises(UsageError, match="is nothing"):
        parse_size(text)


@pytest.mark.parametrize(
    ("written", "percent"),
    [
        ("50", Percent(Fraction(50), has_sign=False)),
        (50, Percent(Fraction(50), has_sign=False)),
        ("50%", Percent(Fraction(50), has_sign=True)),
        (" 12.5 % ", Percent(Fraction(25, 2), has_sign=True)),
        ("-1", None),
        ("5e1", None),
        ("half", None),
        ("50%%", None),
        ("%", None),
        ("", None),
        (float("nan"), None),
        ("9" * 5000, None),
    ],
)
def test_a_percentage_has_its_sign_or_not(written: Written, percent: Percent | None) -> None:
    assert parse_percent(written) == percent
    if isinstance(written, str) and len(written) < 99:
        assert bool(re.search(PERCENT_PATTERN, written)) is (percent is not None)


def test_sizes_are_shown_in_the_largest_unit() -> None:
    assert [format_size(n) for n in (0, 1023, 1536, 3 << 30)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "3 GiB",
    ]


def test_a_whole_number_is_of_few_ascii_digits() -> None:
    assert [whole_number(text) for text in ("0", "007", "9" * 18)] == [0, 7, 10**18 - 1]
    for text in ("", "-1", "+1", "1_0", " 1", "1.0", "²", "٤", "9" * 19, MANY_DIGITS):
        assert whole_number(text) is None
