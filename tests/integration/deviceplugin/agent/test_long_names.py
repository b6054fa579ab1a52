"""A config that is accepted can be served: also resources with the longest names there are."""

from pathlib import Path

import pytest

from deviceplugin.testing import StandInKubelet
from support.node.in_process import InProcessNode, running_node
from support.waiting import wait_until

LONGEST = "g" * 63
CONFIG = """\
version: v1
sharing:
  fractional: [{family: vgpu, devices: [0]}]
  timeSlicing:
    resources: [{name: nvidia.com/gpu, RENAMEreplicas: 2}]
"""
SLICES = ["nvidia.com/vgpu-core", "nvidia.com/vgpu-memory"]


class DeepNode(InProcessNode):
    """Its kubelet's directory leaves little of a socket's path."""

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.kubelet_dir = base / ("k" * 40)
        self.kubelet = StandInKubelet(self.kubelet_dir, 1)

    def wait_registered(self, resources: list[str] | None = None) -> None:
        super().wait_registered(resources if resources != SLICES else [*SLICES, "nvidia.com/gpu"])


def test_a_longest_name_is_served_by_an_edit_and_after_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("support.node.in_process.RESOURCES", ["", "", *SLICES])
    renamed = [*SLICES, f"nvidia.com/{LONGEST}"]
    with running_node(monkeypatch, DeepNode, CONFIG.replace("RENAME", ""), in_world=True) as node:
        node.config.write_text(CONFIG.replace("RENAME", f"rename: {LONGEST}, "))
        node.wait_registered(renamed)
        wait_until(
            lambda: node.kubelet.allocatable().get(renamed[2]) == 4, "the replicas are offered"
        )

        node.stop_agent()
        node.start_agent()
        node.wait_registered(renamed)
        pod = node.admit("job", {LONGEST: 1})

        assert node.kubelet.run_options(pod, "c0").envs["NVIDIA_VISIBLE_DEVICES"]
