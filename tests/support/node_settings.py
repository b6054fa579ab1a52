"""The settings of a node's parts: containerd, its network, its runtime, and the kubelet."""

import json
import shlex
import shutil
import sys
from pathlib import Path

import yaml

from libvgpu.artifacts import SIM_LIBRARY_DIR

from . import ROOT
from .node_image import PAUSE
from .node_parts import CNI_DIRECTORY

CONTAINERD = "/run/containerd/containerd.sock"
KUBELET_PORT = 10255

_CONTAINERD = """\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "{socket}"
# Else it makes /opt/containerd on the machine, where nothing hides it.
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni}"
    conf_dir = "{base}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "{base}/runc"
"""
_NETWORK = {
    "cniVersion": "0.4.0",
    "name": "pods",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "pods0",
            "isGateway": True,
            "ipMasq": True,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.214.0.0/24"}]]},
        },
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ],
}
_KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "containerRuntimeEndpoint": f"unix://{CONTAINERD}",
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "readOnlyPort": KUBELET_PORT,
    "fileCheckFrequency": "1s",
    "syncFrequency": "1s",
    # A container that ended is started again after a second, however often.
    "featureGates": {"KubeletCrashLoopBackOffMax": True},
    "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
    "cgroupDriver": "cgroupfs",
    "failCgroupV1": False,
    "failSwapOn": False,
    "oomScoreAdj": 0,  # a lower one takes CAP_SYS_RESOURCE
    "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%"},
    "imageGCHighThresholdPercent": 100,
}


def write(base: Path, machine: Path) -> None:
    """Writes all of them.

    Args:
        base: takes them: ``containerd.toml``, ``cni``, ``runc``, ``kubelet.yaml``, ``manifests``.
        machine: the simulated machine's directory, for the runtime.
    """
    text = _CONTAINERD.format(socket=CONTAINERD, pause=PAUSE, cni=CNI_DIRECTORY, base=base)
    (base / "containerd.toml").write_text(text)
    (base / "cni").mkdir()
    (base / "cni/pods.conflist").write_text(json.dumps(_NETWORK))
    runtime = [sys.executable, "-I", "-S", str(ROOT / "tests/support/node_runc.py"),
               str(shutil.which("runc")), str(SIM_LIBRARY_DIR), str(machine)]  # fmt: skip
    (base / "runc").write_text(f'#!/bin/sh\nexec {shlex.join(runtime)} "$@"\n')
    (base / "runc").chmod(0o755)
    (base / "manifests").mkdir()
    kubelet = _KUBELET | {
        "staticPodPath": str(base / "manifests"),
        "volumePluginDir": str(base / "volume-plugins"),
    }
    (base / "kubelet.yaml").write_text(yaml.safe_dump(kubelet))
