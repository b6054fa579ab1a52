"""The containerd of a node: which one, how it is set up, and how GPUs come into its containers.

Debian's is of version 1.6, which passes over CDI devices without a word; there `node.runc` stands
in for NVIDIA's container runtime. One of version 2 speaks CDI itself, and its runc is runc.
"""

import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from libvgpu.artifacts import SIM_LIBRARY_DIR
from support import ROOT
from support.node.image import PAUSE
from support.node.parts import CNI_DIRECTORY

CONTAINERD = "/run/containerd/containerd.sock"

_COMMON = """\
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "{socket}"
# Else it makes /opt/containerd on the machine, where nothing hides it.
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
"""
_VERSION_1 = """\
version = 2
{common}
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni}"
    conf_dir = "{base}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "nvidia"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
      BinaryName = "{runc}"
"""
_NVIDIA_RUNTIME = """\
accept-nvidia-visible-devices-as-volume-mounts = {by_mounts}
accept-nvidia-visible-devices-envvar-when-unprivileged = {by_variable}
"""
# It speaks CDI without being told to, and looks into /etc/cdi and /var/run/cdi.
_VERSION_2 = """\
version = 3
{common}
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{pause}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{cni}"]
    conf_dir = "{base}/cni"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = "{runc}"
"""


class Containerd(Protocol):
    """One of the two.

    Attributes:
        programs: the directory of its programs.
    """

    @property
    def programs(self) -> Path: ...

    def write(self, etc: Path, base: Path, machine: Path) -> None:
        """Writes its settings, and those of its runtime, where a node has them.

        Args:
            etc: the node's /etc.
            base: of `NodeHost`.
            machine: the simulated machine's directory.
        """


@dataclass(frozen=True)
class DebiansContainerd:
    """That of the machine, with a stand-in for NVIDIA's runtime.

    Attributes:
        devices_by: how its containers name their GPUs: ``envvar`` or ``volume-mounts``.
        driver: the simulated driver's libraries, which they get.
    """

    devices_by: str = "envvar"
    driver: Path = SIM_LIBRARY_DIR

    @property
    def programs(self) -> Path:
        return Path(str(shutil.which("containerd"))).parent

    def write(self, etc: Path, base: Path, machine: Path) -> None:
        argv = [sys.executable, "-I", "-S", str(ROOT / "tests/support/node/runc.py"),
                _runc(), self.devices_by, str(self.driver), str(machine)]  # fmt: skip
        runtime = base / "nvidia-container-runtime"
        runtime.write_text(f'#!/bin/sh\nexec {shlex.join(argv)} "$@"\n')
        runtime.chmod(0o755)
        by_mounts = self.devices_by == "volume-mounts"
        settings = {"by_mounts": by_mounts, "by_variable": not by_mounts}
        text = _NVIDIA_RUNTIME.format_map({k: str(v).lower() for k, v in settings.items()})
        (etc / "nvidia-container-runtime").mkdir(exist_ok=True)
        (etc / "nvidia-container-runtime/config.toml").write_text(text)
        _write_config(etc, base, _VERSION_1, str(runtime))


@dataclass(frozen=True)
class CdiContainerd:
    """One that speaks CDI.

    Attributes:
        programs: see `Containerd`; `node_parts.build_containerd` makes it.
    """

    programs: Path

    def write(self, etc: Path, base: Path, machine: Path) -> None:
        _write_config(etc, base, _VERSION_2, _runc())


def _runc() -> str:
    return str(shutil.which("runc"))


def _write_config(etc: Path, base: Path, template: str, runc: str) -> None:
    common = _COMMON.format(socket=CONTAINERD)
    text = template.format(common=common, pause=PAUSE, cni=CNI_DIRECTORY, base=base, runc=runc)
    (etc / "containerd").mkdir(exist_ok=True)
    (etc / "containerd/config.toml").write_text(text)
