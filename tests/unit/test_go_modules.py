"""The two judges in Go ask for the same libraries, so that each is compiled once for both."""

import re
from pathlib import Path

from support import ROOT

MODULES = [ROOT / "tests/e2e" / name / "go.mod" for name in ("devicemanager", "install")]
SHARED = {"k8s.io/apimachinery", "k8s.io/apiserver", "k8s.io/kubernetes", "golang.org/x/net"}


def versions(module: Path) -> dict[str, str]:
    """Which version of each module is compiled."""
    text = module.read_text()
    wanted = dict(re.findall(r"^\t([a-z][^\s]+/[^\s]+) (v[^\s]+)(?: // indirect)?$", text, re.M))
    replaced = dict(re.findall(r"^\t([^\s]+) => \1 (v[^\s]+)$", text, re.M))
    return {name: replaced.get(name, version) for name, version in wanted.items()}


def test_a_library_has_one_version() -> None:
    first, second = (versions(module) for module in MODULES)

    assert first.keys() & second.keys() >= SHARED
    assert {n: (first[n], second[n]) for n in first.keys() & second.keys()} == {
        n: (first[n], first[n]) for n in first.keys() & second.keys()
    }
