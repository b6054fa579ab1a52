"""`vgpuctl describe` as typed, on a simulated machine, with the agent and without it."""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deviceplugin.testing import AdmissionFailed
from support import warm
from support.node.simulated import SimulatedNode
from support.output_schemas import check
from support.suite.leftovers import MARK
from support.suite.own_folder import SHORT
from support.waiting import PATIENCE_S, wait_until

CONFIG = """\
version: v1
sharing:
  fractional:
    - {family: vgpu, memoryUnit: 1Gi}
limits:
  - match: {namespace: default, container: c}
    core: 20
"""
GIB = 1 << 30


class DescribedNode:
    """A node with a pod, for all tests here, and the verb as its users type it."""

    def __init__(self, base: Path) -> None:
        self.base = base
        # No single test is to end it (`leftovers`).
        self.node = SimulatedNode(base, "t4*2", CONFIG, variables={MARK: ""})
        self.pod = self.node.admit("train", vgpu_core=30, vgpu_memory=4)
        self.node.devices(self.pod)
        wait_until(lambda: "default/train/c" in self.vgpuctl("ps").stdout, "the pod is known")

    def vgpuctl(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        environment = self.node.machine.environment(os.environ)
        environment |= {"VGPU_RUN_DIR": f"{self.base}/r", "VGPU_STATE_DIR": f"{self.base}/s"}
        return warm.run(["-m", "vgpuctl", *arguments], environment)

    def described(self, *arguments: str) -> list[dict[str, Any]]:
        done = self.vgpuctl("describe", *arguments, "-o", "json")
        assert done.returncode == 0, done.stderr
        return check("describe", done.stdout)


@pytest.fixture(scope="module")
def node() -> Iterator[DescribedNode]:
    with tempfile.TemporaryDirectory(prefix="vgpu-", dir=SHORT) as name:
        described = DescribedNode(Path(name))
        with described.node:
            yield described


def test_a_container_tells_what_it_asked_for_and_where_its_limits_come_from(
    node: DescribedNode,
) -> None:
    (facts,) = node.described("default/train")
    (device,) = facts["devices"]
    assert (device["asked_core_percent"], device["asked_memory_bytes"]) == (30, 4 * GIB)
    assert device["core_percent"] == 20
    assert "limits[0]" in device["core_from"]
    assert (device["memory_limit_bytes"], device["memory_from"]) == (4 * GIB, "request")
    assert facts["owner"] == "default/train/c"
    assert 0 <= time.time() - facts["created_at"] < 2 * PATIENCE_S
    assert (device["gpu"], device["product"]) == ("0", "Tesla T4")
    shown = node.vgpuctl("describe", "default/train/c").stdout
    assert "core 30, memory 4 GiB" in shown
    assert "20 %, from limits[0]" in shown
    assert "launched nothing" in shown


def test_a_gpu_tells_what_is_given_and_free(node: DescribedNode) -> None:
    (facts,) = node.described("0")
    assert (facts["core_allocated_percent"], facts["core_free_percent"]) == (20, 80)
    assert facts["memory_allocated_bytes"] == 4 * GIB
    assert [each["who"] for each in facts["slices"]] == ["default/train/c"]
    assert facts["health"] == {"unhealthy": "", "draining": "", "withheld": ""}
    (again,) = node.described(facts["gpu_uuid"])
    assert again["gpu"] == "0"
    (other,) = node.described("1")
    assert (other["slices"], other["core_free_percent"]) == ([], 100)
    assert "well" in node.vgpuctl("describe", "1").stdout


def test_a_failed_admission_tells_why(node: DescribedNode) -> None:
    with pytest.raises(AdmissionFailed):
        node.node.admit("greedy", vgpu_core=10, vgpu_memory=17)  # more than one GPU has
    done = node.vgpuctl("describe", "default/greedy")
    assert (done.returncode, done.stdout) == (1, "")
    assert "vgpu-memory: 17" in done.stderr


def test_what_is_not_there_is_said(node: DescribedNode) -> None:
    for word, said in (("gpu7", "neither"), ("a/b/c/d", "a/b/c/d"), ("nobody", "nobody")):
        done = node.vgpuctl("describe", word)
        assert (done.returncode, done.stdout) == (2, ""), word
        assert said in done.stderr, word


def test_without_the_agent_the_files_still_tell(node: DescribedNode) -> None:
    node.node.stop_agent()
    (facts,) = node.described("default/train")
    (device,) = facts["devices"]
    assert facts["has_agent"] is False
    assert (device["core_percent"], device["core_from"]) == (20, None)
    shown = node.vgpuctl("describe", "default/train").stdout
    assert "not known without the agent" in shown
    assert "not known without the agent" in node.vgpuctl("describe", "0").stdout
    node.node.start_agent()
