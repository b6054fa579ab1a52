"""The pages of docs/migrate: configs that are good, and pods that ask for what those offer.

What another product's pod asked for is worked out again here, from its own units, and held against
the pod that the page gives in its place.
"""

import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from deviceplugin.config.loading import parse_config
from deviceplugin.model.gpus import Gpu
from deviceplugin.policy.devices.layout import Layout, lay_out
from libvgpu.sim import PROFILES
from support import ROOT

PAGES = ROOT / "docs" / "migrate"
SOURCES = ("nvidia", "hami", "volcano", "kai")
_BLOCK = re.compile(r"```yaml\n# (before|after): (\w+)\n(.*?)```", re.S)
H100 = Gpu(0, "GPU-a", "NVIDIA H100 80GB HBM3", PROFILES["h100-80g"].memory_bytes)
MIB = 1 << 20


def blocks(source: str) -> list[tuple[str, str, str]]:
    """Returns when, what and the text of each example of a page."""
    return _BLOCK.findall((PAGES / f"{source}.md").read_text())


def offered(layout: Layout) -> dict[str, int]:
    """Returns how much of each resource one GPU has."""
    found = {each.name: len(each.devices[0].ids) for each in layout.resources}
    for shared in layout.gpus:
        family = shared.family.name.lower()
        if not shared.replicas:
            name = f"nvidia.com/{family}"
            found |= {f"{name}-core": 100, f"{name}-memory": shared.memory_units}
    return found


def moves() -> list[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """Returns the name, what was there before, and what comes after, of each move."""
    found: list[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = []
    for source in SOURCES:
        before: dict[str, Any] = {}
        after: dict[str, Any] = {}
        for when, what, text in blocks(source):
            (before if when == "before" else after)[what] = text
            if when == "after" and what == "pod":
                found.append((source, before, after))
                before, after = {}, {}
        assert not before, f"{source}.md ends with a move that has no pod after it"
    return found


def limits(pod: str) -> dict[str, int]:
    return dict(yaml.safe_load(pod)["resources"]["limits"])


def part_of_gpu(before: Mapping[str, Any]) -> tuple[int, float]:
    """Returns percent of compute and bytes of memory, by the units of the other product."""
    if "annotations" in before:
        part = float(yaml.safe_load(before["annotations"])["gpu-fraction"])
        return round(part * 100), part * H100.memory_bytes
    asked = limits(before["pod"])
    if "config" in before:
        (sharing,) = yaml.safe_load(before["config"])["sharing"].values()
        replicas = sharing["resources"][0]["replicas"]
        return 100 // replicas, H100.memory_bytes / replicas
    cores, memory = ("gpucores", "gpumem") if "nvidia.com/gpu" in asked else (
        "vgpu-cores", "vgpu-memory")  # fmt: skip
    by_name = {name.partition("/")[2]: amount for name, amount in asked.items()}
    return by_name[cores], by_name[memory] * MIB


@pytest.mark.parametrize(("source", "before", "after"), moves())
def test_a_pod_gets_after_the_move_what_it_had(
    source: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    layout = lay_out(parse_config(after["config"]), (H100,))
    asked, there = limits(after["pod"]), offered(layout)
    percent, size_bytes = part_of_gpu(before)
    core, memory = (next(n for n in asked if n.endswith(end)) for end in ("-core", "-memory"))
    unit = layout.gpus[0].memory_unit_bytes

    assert {name: amount for name, amount in asked.items() if amount > there.get(name, 0)} == {}
    assert asked[core] == percent
    assert 0 <= size_bytes - asked[memory] * unit < unit


@pytest.mark.parametrize("text", [text for when, what, text in blocks("nvidia")
                                  if (when, what) == ("before", "config")])  # fmt: skip
def test_the_plugins_own_config_offers_what_its_pods_ask_for(text: str) -> None:
    there = offered(lay_out(parse_config(text), (H100,)))

    (replicas,) = re.findall(r"replicas: (\d+)", text)
    assert there["nvidia.com/gpu"] == int(replicas)


def test_each_page_is_listed_and_has_a_move() -> None:
    index = (PAGES / "README.md").read_text()
    pages = {path.stem for path in PAGES.glob("*.md")} - {"README"}

    assert {name for name in pages if f"({name}.md)" in index} == pages
    assert {source for source, _, _ in moves()} == set(SOURCES) == pages - {"choose"}


def test_nothing_is_left_over() -> None:
    """Each example is marked, so none escapes the tests above."""
    for source in SOURCES:
        text = (PAGES / f"{source}.md").read_text()
        assert text.count("```yaml") == len(blocks(source))
