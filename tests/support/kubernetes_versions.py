"""Which versions of Kubernetes there are tests on, and building them.

Each is a folder of tests/e2e/kubernetes that is called by its minor; its go.mod names the version.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from . import ROOT, control_plane, go_programs, node_parts

FOLDERS = ROOT / "tests/e2e/kubernetes"
#: That of all other tests; the others take long to build, so they are tested where they are named.
USUAL = "1.34"
#: Names of versions, or ``all``.
VARIABLE = "VGPU_KUBERNETES"
_VERSION = re.compile(r"^\s*(?:require )?k8s\.io/kubernetes (v\S+)", re.M)
#: Settings of `node_settings` that kubelets know from a minor on.
_KNOWN_FROM = {"featureGates": (1, 32), "crashLoopBackOff": (1, 32)}


@dataclass(frozen=True)
class Kubernetes:
    """All of one version.

    Attributes:
        version: as its module has it, with the v.
        programs: the directory of the control plane's.
        kubelet: the program.
        lacks: settings of `node_settings` that its kubelet does not know.
    """

    version: str
    programs: Path
    kubelet: Path
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


def build(minor: str) -> Kubernetes:
    """Returns a version with its programs built.

    Args:
        minor: the name of its folder.

    Raises:
        AssertionError: it does not build, with what the compiler says.
    """
    if minor == USUAL:
        kubelet = node_parts.build() / "kubelet"
        return Kubernetes(control_plane.KUBERNETES, control_plane.build(), kubelet)
    module = FOLDERS / minor
    version = _version_of(module)
    flags = go_programs.kubernetes_version(version)
    programs = go_programs.build_together(
        module,
        f"kubernetes-{minor}",
        {f"k8s.io/kubernetes/cmd/{name}": flags for name in (*control_plane.PROGRAMS, "kubelet")},
    )
    number = tuple(int(part) for part in minor.split("."))
    lacks = tuple(name for name, since in _KNOWN_FROM.items() if number < since)
    return Kubernetes(version, programs, programs / "kubelet", lacks)


def _version_of(module: Path) -> str:
    found = _VERSION.search((module / "go.mod").read_text())
    assert found is not None, f"{module / 'go.mod'} requires no k8s.io/kubernetes"
    return found[1]
