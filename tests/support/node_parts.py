"""What a node is made of: whether it can be had here, and building the kubelet.

The binaries are kept under ``build`` by the hash of what they are made from.
"""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from . import ROOT, go_programs
from .node_keeper import hierarchies

SOURCE = ROOT / "tests/e2e/node"
KUBERNETES = "v1.34.4"
CNI_DIRECTORY = Path("/usr/lib/cni")
PACKAGES = "deploy/dev/install-prerequisites.sh node"
_PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr", "runc", "iptables", "ip", "unshare")
_PLUGINS = ("bridge", "host-local", "portmap", "loopback")
_CONTROLLERS = {"cpu", "cpuacct", "cpuset", "memory", "pids"}


def missing() -> str:
    """Returns as a sentence what keeps a node from running here, empty if nothing does."""
    if os.getuid() != 0:
        return "a node needs root: namespaces, mounts and cgroups of its own"
    lacking = [name for name in _PROGRAMS if shutil.which(name) is None]
    lacking += [str(CNI_DIRECTORY / n) for n in _PLUGINS if not (CNI_DIRECTORY / n).exists()]
    if lacking:
        return f"{', '.join(lacking)} not there; as root: sh {PACKAGES}"
    lacking = sorted(_CONTROLLERS - {c for names in hierarchies() for c in names.split(",")})
    if lacking:
        return f"no cgroup v1 hierarchy of {', '.join(lacking)}: the test's node knows no other"
    tried = subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--cgroup", "--fork",
         "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "wire"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if tried.returncode:
        return f"no namespaces and interfaces of its own can be had: {tried.stderr.strip()}"
    return go_programs.missing(SOURCE, "the kubelet")


def build() -> Path:
    """Returns a directory with ``kubelet`` and ``pause``, from build/ if they are there.

    Raises:
        AssertionError: they do not build, with what the compiler says.
    """
    digest = hashlib.sha256(KUBERNETES.encode())
    for file in (SOURCE / "go.mod", SOURCE / "go.sum", SOURCE / "pause/main.go"):
        digest.update(file.read_bytes())
    folder = ROOT / "build" / "node"
    made = folder / digest.hexdigest()[:16]
    if made.exists():
        return made
    shutil.rmtree(folder, ignore_errors=True)  # of an older source
    draft = folder / "new"
    draft.mkdir(parents=True)
    _go("k8s.io/kubernetes/cmd/kubelet", draft, _version_flags())
    _go("./pause", draft, ())
    draft.rename(made)
    return made


def _go(package: str, target: Path, flags: tuple[str, ...]) -> None:
    # As tests/e2e/devicemanager is compiled, so that Go compiles the packages of both once.
    result = subprocess.run(
        ["go", "build", "-trimpath", "-buildvcs=false", f"-ldflags={' '.join(('-s -w', *flags))}",
         "-o", f"{target}/", package],
        cwd=SOURCE, env={**os.environ, "CGO_ENABLED": "0"},
        capture_output=True, text=True, timeout=go_programs.BUILD_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr


def _version_flags() -> tuple[str, ...]:
    """A kubelet that does not know its version misbehaves."""
    major, minor, _ = KUBERNETES.removeprefix("v").split(".")
    said = {"gitVersion": KUBERNETES, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return tuple(
        f"-X {package}.{name}={value}"
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        for name, value in said.items()
    )
