"""Sizes as people type them."""

import pytest

from libvgpu.errors import UsageError
from libvgpu.sizes import format_size, parse_size


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1", 1),
        ("1GiB", 1 << 30),
        ("1Gi", 1 << 30),
        ("512 MiB", 512 << 20),
        ("4095GiB", 4095 << 30),
    ],
)
def test_sizes_that_are_taken(text: str, count: int) -> None:
    assert parse_size(text) == count


@pytest.mark.parametrize(
    "text", ["0", "0GiB", "-1", "8 bananas", "", "1.5GiB", "1GB", "1g", "9999999GiB", "0x10"]
)
def test_sizes_that_are_refused_name_the_value_and_what_is_allowed(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_size(text, "--memory")

    assert repr(text) in refused.value.message
    assert "--memory" in refused.value.message
    assert "give" in refused.value.message or "at most" in refused.value.message


def test_sizes_are_shown_in_the_largest_unit() -> None:
    assert [format_size(n) for n in (0, 1023, 1536, 3 << 30)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "3 GiB",
    ]
