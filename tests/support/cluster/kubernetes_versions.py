"""Which versions of Kubernetes there are tests on, and building them.

Each is a folder of tests/e2e/kubernetes that is called by its minor; its go.mod names the version.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from support import ROOT
from support.cluster import go_programs
from support.cluster.go_programs import GoPrograms

FOLDERS = ROOT / "tests/e2e/kubernetes"
#: That of all other tests; the others take long to build, so they are tested where they are named.
USUAL = "1.34"
#: What is built of each.
PARTS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
)
#: Names of versions, or ``all``.
VARIABLE = "VGPU_KUBERNETES"
_VERSION = re.compile(r"^\s*(?:require )?k8s\.io/kubernetes (v\S+)", re.M)
#: Settings of `node.settings` that kubelets know from a minor on.
_KNOWN_FROM = {"featureGates": (1, 32), "crashLoopBackOff": (1, 32)}


@dataclass(frozen=True)
class Kubernetes:
    """All of one version.

    Attributes:
        version: as its module has it, with the v.
        programs: the directory of `PARTS`.
        lacks: settings of `node.settings` that its kubelet does not know.
    """

    version: str
    programs: Path
    lacks: tuple[str, ...] = ()


def asked_for() -> list[str]:
    """Returns the minors that are to be tested, as `VARIABLE` says; the usual one without it.

    Raises:
        ValueError: it names one that there is not.
    """
    there = sorted(folder.name for folder in FOLDERS.iterdir() if (folder / "go.mod").exists())
    asked = os.environ.get(VARIABLE, USUAL).split()
    if asked == ["all"]:
        return there
    for minor in asked:
        if minor not in there:
            raise ValueError(
                f"{VARIABLE}={minor!r}: no folder of that name has a go.mod in {FOLDERS}; "
                f"there are {', '.join(there)} and all"
            )
    return asked


def programs(minor: str = USUAL) -> GoPrograms:
    """Returns the programs of a version.

    Args:
        minor: the name of its folder.
    """
    module = FOLDERS / minor
    packages = tuple(f"k8s.io/kubernetes/cmd/{part}" for part in PARTS)
    flags = go_programs.kubernetes_version(_version_of(module))
    return GoPrograms(module, f"Kubernetes {minor}", packages, flags)


def build(minor: str = USUAL) -> Kubernetes:
    """Returns a version with its programs built.

    Args:
        minor: the name of its folder.

    Raises:
        AssertionError: it does not build, with what the compiler says.
    """
    number = tuple(int(part) for part in minor.split("."))
    lacks = tuple(name for name, since in _KNOWN_FROM.items() if number < since)
    return Kubernetes(_version_of(FOLDERS / minor), programs(minor).build(), lacks)


def _version_of(module: Path) -> str:
    found = _VERSION.search((module / "go.mod").read_text())
    assert found is not None, f"{module / 'go.mod'} requires no k8s.io/kubernetes"
    return found[1]
