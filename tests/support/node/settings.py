"""The settings of a node's kubelet and of its network."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

from support.node.containerd import CONTAINERD

KUBELET_PORT = 10255

_NETWORK = {
    "cniVersion": "0.4.0",
    "name": "pods",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "pods0",
            "isGateway": True,
            "ipMasq": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": "10.214.0.0/24"}]],
                "routes": [{"dst": "0.0.0.0/0"}],  # services lie elsewhere
            },
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
    "nodeStatusUpdateFrequency": "1s",  # what a node offers is told that often
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


def write(base: Path, more: Mapping[str, Any] | None = None, lacks: Collection[str] = ()) -> None:
    """Writes ``cni`` with the network of pods, ``kubelet.yaml`` and ``manifests`` into ``base``.

    Args:
        more: settings of the kubelet.
        lacks: names of those that it does not know.
    """
    (base / "cni").mkdir()
    (base / "cni/pods.conflist").write_text(json.dumps(_NETWORK))
    (base / "manifests").mkdir()
    kubelet = {name: value for name, value in _KUBELET.items() if name not in lacks} | {
        "staticPodPath": str(base / "manifests"),
        "volumePluginDir": str(base / "volume-plugins"),
        **(more or {}),
    }
    (base / "kubelet.yaml").write_text(yaml.safe_dump(kubelet))
