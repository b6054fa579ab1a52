"""A kubelet whose podresources does not answer: what returns, what may start, and who is told."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deviceplugin.core import podresources_health, podresources_sync
from deviceplugin.testing import AdmissionFailed, StandInKubelet
from support.node.in_process import InProcessNode, running_node
from support.waiting import wait_until
from vgpuctl.agent_client import agent_report, metrics_page
from vgpuctl.doctor import agent_checks

PAIR = {"vgpu-core": 100, "vgpu-memory": 16}


def with_directories(base: Path) -> InProcessNode:
    node = InProcessNode(base)
    node.kubelet = StandInKubelet(node.kubelet_dir, 1, makes_pod_directories=True)
    return node


def without_directories(base: Path) -> InProcessNode:
    return InProcessNode(base)


@pytest.fixture(params=[with_directories, without_directories])
def node(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[InProcessNode]:
    monkeypatch.setattr(podresources_health, "SILENT_AFTER_S", 0.5)
    monkeypatch.setattr(podresources_sync, "PATIENCE_S", 1.0)
    with running_node(monkeypatch, request.param, in_world=True) as node:
        yield node


def metric(node: InProcessNode) -> str:
    lines = metrics_page(node.run_dir).splitlines()
    return next(line for line in lines if line.startswith("vgpu_podresources_up"))


def silence(node: InProcessNode) -> None:
    node.kubelet.podresources_socket.rename(node.kubelet_dir / "aside")
    wait_until(lambda: agent_report(node.run_dir).podresources_problem is not None)


def test_units_come_back_by_the_kubelets_checkpoint(
    node: InProcessNode, caplog: pytest.LogCaptureFixture
) -> None:
    pods = [node.admit(f"old-{n}", PAIR) for n in range(2)]
    for pod in pods:
        node.kubelet.run_options(pod, "c0")
    assert metric(node) == "vgpu_podresources_up 1.0"
    silence(node)
    assert metric(node) == "vgpu_podresources_up 0.0"
    stays = node.admit("stays", {"mps-core": 10, "mps-memory": 2})  # and its list is written

    node.kubelet.finish(pods[0])
    node.admit("another", {"mps-core": 10, "mps-memory": 2})  # the kubelet writes its checkpoint

    wait_until(lambda: len([*(node.run_dir / "allocations").iterdir()]) == 3)
    node.kubelet.run_options(stays, "c0")
    again = node.admit("again", PAIR)
    node.kubelet.run_options(again, "c0")
    with pytest.raises(AdmissionFailed):
        node.admit("over", PAIR)
    report = agent_report(node.run_dir)
    (finding,) = agent_checks.podresources(report)
    assert finding.level == "fail"
    assert "come back later, by the kubelet's checkpoint" in finding.message
    told = [r.message for r in caplog.records if "podresources does not answer" in r.message]
    assert len(told) == 1

    (node.kubelet_dir / "aside").rename(node.kubelet.podresources_socket)
    wait_until(lambda: agent_report(node.run_dir).podresources_problem is None)
    assert metric(node) == "vgpu_podresources_up 1.0"


def test_a_start_without_any_record_is_refused_and_may_be_tried_again(
    node: InProcessNode,
) -> None:
    silence(node)
    pod = node.admit("pod", PAIR)
    kept = node.kubelet.checkpoint.read_bytes()
    node.kubelet.checkpoint.unlink()

    with pytest.raises(AdmissionFailed, match="podresources of the kubelet gave no answer"):
        node.kubelet.run_options(pod, "c0")

    node.kubelet.checkpoint.write_bytes(kept)
    node.kubelet.run_options(pod, "c0")
