"""What YAML scalars are: as in PyYAML, but for numbers to base 60."""

from typing import Any

import pytest
import yaml

from libvgpu.yamltext import parse

SAME = [
    "0", "7", "-3", "+4", "0x1F", "0b101", "017", "1_000", "1.5", "-0.25", ".5", "1.0e+3", ".inf",
    "-.inf", ".nan", "true", "off", "null", "~", "text", "'1'", "1Gi", "2026-11-25", "1.5.2",
]  # fmt: skip


@pytest.mark.parametrize("text", SAME)
def test_scalars_are_what_they_always_were(text: str) -> None:
    assert repr(parse(f"[{text}]", "x")[0]) == repr(yaml.safe_load(f"[{text}]"))


@pytest.mark.parametrize("text", ["1:2", "0:3", "12:30:45", "1:30.5"])
def test_what_has_colons_is_a_text(text: str) -> None:
    found: Any = parse(f"devices: [{text}]", "x")[0]

    assert found == {"devices": [text]}
