"""Amounts as Kubernetes writes them."""

import pytest

from deviceplugin.kube.quantity import whole_amount
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
    with pytest.raises(VgpuError, match="is no amount; allowed are"):
        whole_amount(text)
