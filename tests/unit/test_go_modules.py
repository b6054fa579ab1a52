"""The Go modules of the tests ask for the same libraries: each is compiled once for all of them."""

import re
from pathlib import Path

from support import ROOT

MODULES = sorted((ROOT / "tests/e2e").glob("*/go.mod"))
SHARED = {"k8s.io/apimachinery", "k8s.io/apiserver", "k8s.io/kubernetes", "golang.org/x/net"}


def versions(module: Path) -> dict[str, str]:
    """Which version of each module is compiled."""
    text = module.read_text()
    wanted = dict(re.findall(r"^\t([a-z][^\s]+/[^\s]+) (v[^\s]+)(?: // indirect)?$", text, re.M))
    replaced = dict(re.findall(r"^\t([^\s]+) => \1 (v[^\s]+)$", text, re.M))
    return {name: replaced.get(name, version) for name, version in wanted.items()}


def test_a_library_has_one_version() -> None:
    first, *others = (versions(module) for module in MODULES)

    assert others
    for other in others:
        assert first.keys() & other.keys() >= SHARED
        differ = {n: (v, other[n]) for n, v in first.items() if n in other and other[n] != v}
        assert differ == {}
