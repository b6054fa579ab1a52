"""Amounts as Kubernetes writes them."""

import pytest

from deviceplugin.kube.quantity import MOST_UNITS, unit_count, whole_amount
from libvgpu.errors import VgpuError


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0), ("100", 100), (7, 7), ("+5", 5), ("1k", 1000), ("2Ki", 2048), ("1e3", 1000),
        ("1E3", 1000), ("1E", 10**18), ("1M", 10**6), ("3Gi", 3 << 30), ("1.5Ki", 1536),
        ("100.", 100), (".5k", 500), ("2000m", 2), ("1m", 1), ("1500m", 2), ("1n", 1),
        ("12e-1", 2), ("1e-999", 1), ("9e999", (1 << 63) - 1), ("16Ei", (1 << 63) - 1),
    ],
)  # fmt: skip
def test_amounts_are_whole_numbers(text: str | int, amount: int) -> None:
    assert whole_amount(text) == amount


@pytest.mark.parametrize(
    "text", ["", "k", "-1", "1 k", "1kk", "1KI", "0x10", "1e", "1e9999", "٣", "1\n", "9" * 65, "."]
)
def test_what_is_no_amount_is_refused_by_name(text: str) -> None:
    with pytest.raises(VgpuError, match="is not an amount; allowed are"):
        whole_amount(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [("16", 16), ("2k", 2000), ("2000m", 2), (MOST_UNITS, MOST_UNITS), ("1e3", 1000)],
)
def test_units_are_whole_numbers_that_a_node_may_have(text: str | int, count: int) -> None:
    assert unit_count(text) == count


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("16Gi", "'16Gi' is more than any node has; .* count units and not bytes: for 16 write 16"),
        (MOST_UNITS + 1, "'2147483648' is more than any node has; .* from 0 to 2147483647,"),
        ("1e30", "'1e30' is more than any node has.*not bytes$"),
        ("16E", "for 16 write 16"),
        ("9e999", "'9e999' is more than any node has"),
        (10**60, "is more than any node has"),
        ("0.5", "'0.5' is not a whole number, and units are not divided"),
        ("100m", "'100m' is not a whole number"),
        ("1e-999", "'1e-999' is not a whole number"),
        ("-1", "'-1' is not an amount; allowed are"),
        (-(2**70), "is not an amount; allowed are"),
        ("9" * 5000, "'9{64}…' is not an amount"),
    ],
)
def test_units_that_cannot_be_are_refused_by_name(text: str | int, says: str) -> None:
    with pytest.raises(VgpuError, match=says):
        unit_count(text)
