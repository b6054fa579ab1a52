"""What a node is made of: whether it can be had here, and building what is not Debian's."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support import ROOT
from support.cluster import go_modules, kubernetes_versions
from support.cluster.go_programs import GoPrograms
from support.node import cgroups as node_cgroups

_RELEASES = ROOT / "tests/e2e/releases"
_CONTAINERD = "github.com/containerd/containerd/v2"
CONTAINERD = go_modules.version_of(_RELEASES, _CONTAINERD)
CNI_DIRECTORY = Path("/usr/lib/cni")
PACKAGES = "deploy/dev/install-prerequisites.sh node"
_OF_CONTAINERD = ("containerd", "containerd-shim-runc-v2", "ctr")
_CONTAINERD_2 = GoPrograms(
    "containerd",
    "containerd 2",
    tuple(f"{_CONTAINERD}/cmd/{name}" for name in _OF_CONTAINERD),
    f"-X {_CONTAINERD}/version.Version={CONTAINERD}",
    _RELEASES,
    _CONTAINERD,
)
_PAUSE = GoPrograms("pause", "what holds a pod's namespaces", ("./pause",))
_PROGRAMS = (*_OF_CONTAINERD, "runc", "iptables", "ip", "unshare")
_PLUGINS = ("bridge", "host-local", "portmap", "loopback")


def missing() -> str:
    """Returns as a sentence what keeps a node from running here, empty if nothing does."""
    if os.getuid() != 0:
        return "a node needs root: namespaces, mounts and cgroups of its own"
    lacking = [name for name in _PROGRAMS if shutil.which(name) is None]
    lacking += [str(CNI_DIRECTORY / n) for n in _PLUGINS if not (CNI_DIRECTORY / n).exists()]
    if lacking:
        return f"{', '.join(lacking)} not there; as root: sh {PACKAGES}"
    if why_not := node_cgroups.lacking(node_cgroups.hierarchies()):
        return why_not
    tried = subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--cgroup", "--fork",
         "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "wire"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if tried.returncode:
        return f"no namespaces and interfaces of its own can be had: {tried.stderr.strip()}"
    return kubernetes_versions.programs().missing() or _PAUSE.missing()


def kubelet() -> Path:
    """Returns the kubelet.

    Raises:
        AssertionError: it does not build, with what the compiler says; also of the others here.
    """
    return kubernetes_versions.build().programs / "kubelet"


def pause() -> Path:
    """Returns the program that holds a pod's namespaces."""
    return _PAUSE.build() / "pause"


def build_containerd() -> Path:
    """Returns a directory with containerd 2, its shim for runc and its ``ctr``; or skips."""
    if why_not := missing() or _CONTAINERD_2.missing():
        pytest.skip(why_not)
    return _CONTAINERD_2.build()
