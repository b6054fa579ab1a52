"""The pods that JupyterHub makes of the example's values, by KubeSpawner's own code.

The chart of Zero to JupyterHub hands `profileList` on to it as it is.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from support import ROOT
from support.cluster import hub

VALUES = ROOT / "deploy/examples/workloads/jupyterhub/values.yaml"
GPU = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}

pytestmark = [
    pytest.mark.network,
    pytest.mark.long,
    pytest.mark.timeout(hub.INSTALL_TIMEOUT_S + 200),
]


def made(settings: dict[str, Any], folder: Path) -> dict[str, tuple[dict[str, str], list[Any]]]:
    """Returns limits and tolerations of each profile's pod."""
    try:
        pods = hub.pods(settings, folder)
    except hub.NotHere as error:
        pytest.skip(str(error))
    found = {}
    for name, pod in pods.items():
        (container,) = pod["spec"]["containers"]
        found[name] = container["resources"].get("limits", {}), pod["spec"].get("tolerations", [])
    return found


def profiles() -> list[dict[str, Any]]:
    return list(yaml.safe_load(VALUES.read_text())["singleuser"]["profileList"])


def test_each_profile_has_its_slice_and_comes_to_gpu_nodes_only_with_one(tmp_path: Path) -> None:
    assert made({"profile_list": profiles()}, tmp_path) == {
        "No GPU": ({}, []),
        "A fifth of a GPU, 8 GiB": (
            {"nvidia.com/vgpu-core": "20", "nvidia.com/vgpu-memory": "8"}, [GPU]),
        "Half a GPU, 40 GiB": (
            {"nvidia.com/vgpu-core": "50", "nvidia.com/vgpu-memory": "40"}, [GPU]),
    }  # fmt: skip


def test_kubespawner_refuses_a_setting_that_it_does_not_have(tmp_path: Path) -> None:
    wrong = yaml.safe_load(
        yaml.safe_dump(profiles()).replace("extra_resource_limits", "extra_resources_limits")
    )

    with pytest.raises(AssertionError, match="no attribute 'extra_resources_limits'"):
        made({"profile_list": wrong}, tmp_path)
