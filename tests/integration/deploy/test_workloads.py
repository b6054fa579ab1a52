"""deploy/examples/workloads: configs that the agent accepts, and resources that it offers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deviceplugin.config.loading import parse_config
from deviceplugin.model.units import fraction_resources
from support import ROOT

EXAMPLES = ROOT / "deploy/examples/workloads"
DOMAIN = "nvidia.com"
OFFERED = fraction_resources(DOMAIN) | {f"{DOMAIN}/gpu.shared", f"{DOMAIN}/mig-1g.5gb"}
FILES = sorted(str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.yaml"))
CONFIGS = [name for name in FILES if name.endswith("config.yaml")]


def amounts(value: Any) -> Iterator[dict[str, Any]]:
    """Yields every object within that has resources of ours."""
    if isinstance(value, dict):
        if any(str(key).startswith(f"{DOMAIN}/") for key in value):
            yield value
        for each in value.values():
            yield from amounts(each)
    elif isinstance(value, list):
        for each in value:
            yield from amounts(each)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_agent_accepts_its_config(name: str) -> None:
    parse_config((EXAMPLES / name).read_text())


@pytest.mark.parametrize("name", [name for name in FILES if name not in CONFIGS])
def test_it_asks_for_resources_that_there_are(name: str) -> None:
    found = [
        each
        for document in yaml.safe_load_all((EXAMPLES / name).read_text())
        for each in amounts(document)
    ]

    assert found
    for each in found:
        assert each.keys() <= OFFERED
        assert all(0 < int(number) <= 100 for number in each.values())


def test_every_folder_is_named_in_the_readme() -> None:
    text = (EXAMPLES / "README.md").read_text()

    for folder in {Path(name).parts[0] for name in FILES}:
        assert f"`{folder}/`" in text
