"""What the agent has again when it was killed or its memory was lost: every slice, and once.

`agent/test_histories.py` kills the agent at counted changes of its files, cuts the node's power,
and has its kubelet forget units in the midst of calls; `agent/test_kills.py` kills the process.
"""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deviceplugin.model.allocations import Allocation
from deviceplugin.policy.pairing import podresources_listing
from deviceplugin.recovery.kubelet_checkpoint import NAME
from deviceplugin.store.checkpoint import Checkpoint
from deviceplugin.testing import AdmissionFailed, AdmittedPod
from libvgpu import allocation_dirs, artifacts, region
from libvgpu.limits import ContainerLimits, Family
from support.node.agent_process import ProcessNode
from support.node.in_process import GIB, RESOURCES, InProcessNode, running_node, wait_until_lost
from support.waiting import PATIENCE_S, bar, wait_until

pytestmark = pytest.mark.usefixtures("in_world")

PAIR = {"vgpu-core": 30, "vgpu-memory": 4}
ALL_FREE = {"mps-core": 100, "mps-memory": 16, "vgpu-core": 200, "vgpu-memory": 32}


@pytest.fixture
def killable(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProcessNode]:
    with running_node(monkeypatch, ProcessNode) as node:
        assert isinstance(node, ProcessNode)
        yield node


def delete(node: InProcessNode) -> None:
    (node.state_dir / "checkpoint.json").unlink()


def garbage(node: InProcessNode) -> None:
    (node.state_dir / "checkpoint.json").write_bytes(b"\0garbage\n" * 99)


def flipped(node: InProcessNode) -> None:
    path = node.state_dir / "checkpoint.json"
    content = bytearray(path.read_bytes())
    content[10] ^= 1
    path.write_bytes(content)


def delete_and_reboot(node: InProcessNode) -> None:
    delete(node)
    for directory in (node.run_dir / "allocations").iterdir():
        allocation_dirs.remove(directory)


def units(*pods: AdmittedPod) -> list[str]:
    return [
        unit
        for pod in pods
        for container in pod.containers
        for given in container.devices.values()
        for unit in given
    ]


def stored(node: InProcessNode) -> tuple[Allocation, ...]:
    """Returns the agent's allocations as they are on disk."""
    copy = node.config.parent / "copy"
    copy.mkdir()
    shutil.copy(node.state_dir / "checkpoint.json", copy)
    return Checkpoint(copy).load().allocations


def restart_agent(node: InProcessNode) -> None:
    node.start_agent()
    node.wait_registered()


def wait_all_free(node: InProcessNode) -> None:
    """Waits until every unit can be had again, as the agent and as the kubelet see it."""
    wait_until(lambda: not [*(node.run_dir / "allocations").iterdir()])
    wanted = {f"nvidia.com/{name}": count for name, count in ALL_FREE.items()}
    wait_until(lambda: node.kubelet.allocatable() == wanted)
    pods = [
        node.admit("all-mps", {"mps-core": 100, "mps-memory": 16}),
        node.admit("all-1", {"vgpu-core": 100, "vgpu-memory": 16}),
        node.admit("all-2", {"vgpu-core": 100, "vgpu-memory": 16}),
    ]
    for pod in pods:
        assert node.limit(pod).memory_limit_bytes == 16 * GIB
        node.kubelet.finish(pod)


@pytest.mark.parametrize("lose", [delete, garbage, flipped, delete_and_reboot])
def test_a_lost_checkpoint_is_made_anew_from_the_kubelets(
    node: InProcessNode, lose: Callable[[InProcessNode], None]
) -> None:
    pods = {
        name: node.admit(name, *containers)
        for name, containers in {
            "pair": [PAIR],
            "mps": [{"mps-core": 50, "mps-memory": 8}],
            "two": [PAIR, {"vgpu-core": 10, "vgpu-memory": 2}],
            "lone": [{"vgpu-core": 25}],
        }.items()
    }
    started = [(pod, c.manifest.name) for pod in pods.values() for c in pod.containers]
    limits = {(pod.uid, name): node.limit(pod, name) for pod, name in started}
    wait_until(lambda: node.kubelet.allocatable()["nvidia.com/vgpu-memory"] == 28)
    node.stop_agent()
    lose(node)
    nobodys = node.run_dir / "allocations" / "0123456789ab"  # its admission failed meanwhile
    region.create(nobodys, ContainerLimits("0123456789ab", Family.VGPU, ()), device_capacity=1)

    restart_agent(node)

    assert not nobodys.exists()
    wait_until(lambda: node.kubelet.allocatable()["nvidia.com/vgpu-memory"] == 28)
    assert {(pod.uid, name): node.limit(pod, name) for pod, name in started} == limits
    held = stored(node)
    assert sorted(u for h in held for u in (*h.core, *h.memory)) == sorted(units(*pods.values()))
    assert {h.shim_build for h in held} != {""}
    taken = node.admit("next", {"vgpu-core": 50, "vgpu-memory": 8})
    assert not set(units(taken)) & set(units(*pods.values()))
    with pytest.raises(AdmissionFailed):
        node.admit("over", {"mps-core": 60, "mps-memory": 1})
    for pod in (*pods.values(), taken):
        node.kubelet.finish(pod)
    wait_all_free(node)


def test_without_any_witness_nothing_is_swept_and_the_start_is_refused_in_words(
    node: InProcessNode,
) -> None:
    pod = node.admit("a", PAIR)
    node.limit(pod)
    node.stop_agent()
    delete(node)
    (node.kubelet_dir / "device-plugins" / NAME).write_text("{")

    restart_agent(node)

    assert len(list((node.run_dir / "allocations").iterdir())) == 1
    with pytest.raises(AdmissionFailed, match="the agent has no record of these"):
        node.limit(pod)


def test_a_pod_that_ended_before_a_restart_is_not_taken_back(node: InProcessNode) -> None:
    stays = node.admit("stays", PAIR)
    lone = node.admit("lone", {"vgpu-core": 25})
    for pod in (stays, lone):
        node.limit(pod)
    node.kubelet.finish(lone)
    wait_until(lambda: len(list((node.run_dir / "allocations").iterdir())) == 1)
    wait_until(lambda: lone.uid not in node.kubelet.checkpoint.read_text())
    node.stop_agent()

    restart_agent(node)

    (held,) = stored(node)
    assert {*held.core, *held.memory} == set(units(stays))
    assert node.kubelet.allocatable()["nvidia.com/vgpu-memory"] == 32


def test_what_ended_while_the_memory_was_lost_is_freed(
    node: InProcessNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not by time: only the offer of their units may tell the agent, however slow this machine is.
    monkeypatch.setattr(podresources_listing, "ENDED_AFTER_S", 10 * PATIENCE_S)
    monkeypatch.setattr(podresources_listing, "NEVER_SEEN_AFTER_S", 10 * PATIENCE_S)
    pods = [node.admit(name, PAIR) for name in ("a", "b")]
    wait_until(lambda: all(a.meta.pod for a in allocation_dirs.list_allocations(node.run_dir)))
    node.stop_agent()
    delete(node)
    for pod in pods:
        node.kubelet.finish(pod)

    restart_agent(node)

    assert len(stored(node)) == 2, "the kubelet has not written since, so it names them"
    for name in ("c", "d"):
        whole = node.admit(name, {"vgpu-core": 100, "vgpu-memory": 16})
        assert node.limit(whole).memory_limit_bytes == 16 * GIB


@pytest.mark.parametrize("most_s", bar(2.0))
def test_a_restarted_kubelet_has_its_plugins_back_within_two_seconds(
    node: InProcessNode, most_s: float
) -> None:
    pods = [node.admit(name, PAIR) for name in ("a", "b")]
    limits = [node.limit(pod) for pod in pods]
    before = units(*pods)

    for _ in range(3):
        node.kubelet.stop()
        node.kubelet.start()
        node.kubelet.wait_for_resources(RESOURCES, most_s)
        assert units(*pods) == before
        for pod in pods:
            node.kubelet.readmit(pod)

    assert [node.limit(pod) for pod in pods] == limits
    late = node.admit("late", PAIR)
    assert not set(units(late)) & set(before)
    node.kubelet.finish(pods[0])
    node.kubelet.stop()
    node.kubelet.start()
    node.wait_registered()
    for pod in (pods[1], late):
        node.kubelet.finish(pod)
    wait_all_free(node)


def test_a_killed_agent_is_back_with_every_slice(killable: ProcessNode) -> None:
    node = killable
    pods = [node.admit("a", PAIR), node.admit("b", {"mps-core": 20, "mps-memory": 3})]
    limits = [node.limit(pod) for pod in pods]

    node.kill_agent()
    wait_until_lost(node.kubelet)
    assert list((node.kubelet_dir / "device-plugins").glob("nvidia*")), "killed in good order"
    restart_agent(node)

    assert [node.limit(pod) for pod in pods] == limits
    for pod in pods:
        node.kubelet.finish(pod)
    wait_all_free(node)


def test_an_upgrade_keeps_the_old_build_until_its_last_container_has_ended(
    node: InProcessNode,
) -> None:
    pod = node.admit("old", PAIR)
    limit = node.limit(pod)
    (old,) = (node.state_dir / "lib").iterdir()
    node.stop_agent()
    source = artifacts.SHIM_PATH.with_suffix(".c")
    source.write_text("int something;\n")
    subprocess.run(
        ["cc", "-shared", "-Wl,--build-id=sha1", "-o", artifacts.SHIM_PATH, source],
        check=True,
        timeout=PATIENCE_S,
    )

    restart_agent(node)

    assert len([*(node.state_dir / "lib").iterdir()]) == 2
    assert node.limit(pod) == limit
    mounts = node.kubelet.run_options(pod, "c0").mounts
    assert all(Path(mount.host_path).exists() for mount in mounts)
    node.kubelet.finish(pod)
    node.kubelet.finish(node.admit("new", PAIR))  # the kubelet writes its checkpoint
    wait_until(lambda: not [*(node.run_dir / "allocations").iterdir()])
    node.stop_agent()
    restart_agent(node)
    assert not old.exists()
