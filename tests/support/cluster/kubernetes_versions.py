"""Which versions of Kubernetes there are tests on, and building them.

Each but the usual one is a folder of tests/e2e/kubernetes that is called by its minor. Its go.mod
names the version, and its programs are built from what that release pins. The usual one is that of
the judges in tests/e2e, so that what they have in common is compiled once.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from support import ROOT
from support.cluster import go_modules, go_programs
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
_MODULE = "k8s.io/kubernetes"
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
    there = sorted({USUAL, *(folder.parent.name for folder in FOLDERS.glob("*/go.mod"))})
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
    return GoPrograms(
        f"kubernetes-{minor}",
        f"Kubernetes {minor}",
        tuple(f"{_MODULE}/cmd/{part}" for part in PARTS),
        go_programs.kubernetes_version(_version_of(minor)),
        _pins(minor),
        "" if minor == USUAL else _MODULE,
    )


def build(minor: str = USUAL) -> Kubernetes:
    """Returns a version with its programs built.

    Args:
        minor: the name of its folder.

    Raises:
        AssertionError: it does not build, with what the compiler says.
    """
    number = tuple(int(part) for part in minor.split("."))
    lacks = tuple(name for name, since in _KNOWN_FROM.items() if number < since)
    return Kubernetes(_version_of(minor), programs(minor).build(), lacks)


def _pins(minor: str) -> Path:
    return FOLDERS.parent if minor == USUAL else FOLDERS / minor


def _version_of(minor: str) -> str:
    return go_modules.version_of(_pins(minor), _MODULE)
