"""The judges in Go ask for the same libraries, so that each is compiled once for all of them."""

import re
from itertools import combinations
from pathlib import Path

import pytest

from support import ROOT

MODULES = [
    ROOT / "tests/e2e" / name / "go.mod" for name in ("devicemanager", "install", "kubernetes/1.34")
]
SHARED = {"k8s.io/apimachinery", "k8s.io/apiserver", "k8s.io/kubernetes", "golang.org/x/net"}


def versions(module: Path) -> dict[str, str]:
    """Which version of each module is compiled."""
    text = module.read_text()
    wanted: dict[str, str] = dict(
        re.findall(r"^\t([a-z][^\s]+/[^\s]+) (v[^\s]+)(?: // indirect)?$", text, re.M)
    )
    replaced: dict[str, str] = dict(re.findall(r"^\t([^\s]+) => \1 (v[^\s]+)$", text, re.M))
    return {name: replaced.get(name, version) for name, version in wanted.items()}


@pytest.mark.parametrize(
    ("one", "other"), [*combinations(MODULES, 2)], ids=lambda module: module.parent.name
)
def test_a_library_has_one_version(one: Path, other: Path) -> None:
    first, second = versions(one), versions(other)

    both = first.keys() & second.keys()
    assert both >= SHARED
    assert {name: first[name] for name in both} == {name: second[name] for name in both}
