"""The values for NVIDIA's GPU Operator name what its chart has.

Its chart is not fetched here. The keys were read in deployments/gpu-operator/values.yaml of
NVIDIA/gpu-operator at commit d7413be9727387537b654a25d25f932767794663, those near ours as well.
"""

from collections.abc import Iterator
from typing import Any

import yaml

from support import ROOT

VALUES = ROOT / "deploy/examples/gpu-operator/gpu-operator-values.yaml"
POLICY = "driver.upgradePolicy"
KEYS = {
    "devicePlugin.enabled",
    "driver.enabled",
    "driver.manager.env",
    "driver.manager.image",
    "driver.manager.version",
    f"{POLICY}.autoUpgrade",
    f"{POLICY}.maxParallelUpgrades",
    f"{POLICY}.maxUnavailable",
    f"{POLICY}.waitForCompletion.timeoutSeconds",
    f"{POLICY}.waitForCompletion.podSelector",
    f"{POLICY}.gpuPodDeletion.force",
    f"{POLICY}.gpuPodDeletion.timeoutSeconds",
    f"{POLICY}.gpuPodDeletion.deleteEmptyDir",
    f"{POLICY}.drain.enable",
    f"{POLICY}.drain.podSelector",
}


def leaves(values: dict[str, Any], path: str = "") -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{path}{key}.")
        else:
            yield path + key


def test_every_key_is_one_of_the_operators() -> None:
    found = set(leaves(yaml.safe_load(VALUES.read_text())))

    assert found
    assert found <= KEYS


def test_nothing_but_the_plugin_of_single_nodes_is_switched_off() -> None:
    values = yaml.safe_load(VALUES.read_text())

    assert not [key for key in leaves(values) if key.endswith("enabled")]
    assert "nvidia.com/gpu.deploy.device-plugin=false" in VALUES.read_text()
