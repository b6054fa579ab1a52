"""What a node is made of: whether it can be had here, and building the kubelet and containerd 2.

The binaries are kept under ``build`` by the hash of what they are made from.
"""

import os
import shutil
import subprocess
from pathlib import Path

from . import ROOT, go_programs, node_cgroups

SOURCE = ROOT / "tests/e2e/node"
#: A module of its own, since the two want other versions of what both are made of.
CONTAINERD_SOURCE = SOURCE / "containerd"
#: The versions that the two go.mod name.
KUBERNETES = "v1.34.4"
CONTAINERD = "v2.2.9"
CNI_DIRECTORY = Path("/usr/lib/cni")
PACKAGES = "deploy/dev/install-prerequisites.sh node"
_CONTAINERD = "github.com/containerd/containerd/v2"
_OF_CONTAINERD = ("containerd", "containerd-shim-runc-v2", "ctr")
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
    return go_programs.missing(SOURCE, "the kubelet")


def missing_containerd() -> str:
    """Returns as a sentence what keeps `build_containerd` from working, empty if nothing does."""
    return go_programs.missing(CONTAINERD_SOURCE, "containerd 2")


def build() -> Path:
    """Returns a directory with ``kubelet`` and ``pause``, from build/ if they are there.

    Raises:
        AssertionError: they do not build, with what the compiler says.
    """
    version = go_programs.kubernetes_version(KUBERNETES)
    return go_programs.build_together(
        SOURCE, "node", {"k8s.io/kubernetes/cmd/kubelet": version, "./pause": ""}
    )


def build_containerd() -> Path:
    """Returns a directory with containerd 2, its shim for runc and its ``ctr``, from build/ too.

    Raises:
        AssertionError: they do not build, with what the compiler says.
    """
    version = f"-X {_CONTAINERD}/version.Version={CONTAINERD}"
    packages = {f"{_CONTAINERD}/cmd/{name}": version for name in _OF_CONTAINERD}
    return go_programs.build_together(CONTAINERD_SOURCE, "containerd", packages)
