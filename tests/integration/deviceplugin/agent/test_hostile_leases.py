"""A lease or a lock that a container takes on its mounted files holds up nobody else.

The attackers are programs that do it to the real files, next to the agent as a process.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from deviceplugin.testing import AdmittedPod
from libvgpu.errors import RegionBusyError
from libvgpu.region_files import open_limits
from support.node.agent_process import ProcessNode
from support.node.in_process import CONFIG, GIB, running_node, wait_until_lost
from support.shim.hostile import lease, lock
from support.waiting import wait_until

PAIR = {"vgpu-core": 10, "vgpu-memory": 2}
LOWERED = CONFIG + "limits:\n- {memory: 1Gi}\n"


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProcessNode]:
    with running_node(monkeypatch, ProcessNode) as node:
        assert isinstance(node, ProcessNode)
        yield node


def files(node: ProcessNode, pod: AdmittedPod) -> dict[str, Path]:
    """Returns the host's paths of what is mounted for a container, by short names."""
    mounts = node.kubelet.run_options(pod, "c0").mounts
    hosts = {m.container_path.rpartition("/")[2]: Path(m.host_path) for m in mounts}
    hosts["lib"], hosts["preload"] = hosts.pop("libvgpu.so"), hosts.pop("ld.so.preload")
    return hosts


def is_leased(path: Path) -> bool:
    """Returns whether the kernel would have who opens `limits` for writing wait."""
    try:
        os.close(open_limits(path))
    except RegionBusyError:
        return True
    return False


@pytest.mark.parametrize("kind", ["F_RDLCK", "F_WRLCK"])
def test_no_container_gets_a_lease_that_others_would_wait_for(node: ProcessNode, kind: str) -> None:
    mounted = files(node, node.admit("hostile", PAIR))
    # Nobody opens the library for writing, so a read lease on it holds up nobody.
    names = ["limits", "usage"] + (["lib", "preload"] if kind == "F_WRLCK" else [])

    for name in names:
        with lease(mounted[name], kind) as attacker:
            assert attacker.said.startswith("refused:"), name


def test_locks_hold_up_nobody(node: ProcessNode) -> None:
    pods = [node.admit("hostile", PAIR), node.admit("honest", PAIR)]
    mounted = files(node, pods[0])
    with lock(mounted["limits"]), lock(mounted["usage"]), lock(mounted["lib"]):
        node.config.write_text(LOWERED)
        wait_until(lambda: [node.limit(pod).memory_limit_bytes for pod in pods] == [GIB, GIB])
        assert "vgpu_container_memory_limit_bytes" in node.page("/metrics")


def test_leases_that_were_taken_while_no_agent_ran_hold_up_nobody(node: ProcessNode) -> None:
    hostile, honest = node.admit("hostile", PAIR), node.admit("honest", PAIR)
    mounted = files(node, hostile)
    inode = mounted["limits"].stat().st_ino
    node.kill_agent()
    wait_until_lost(node.kubelet)
    with (
        lease(mounted["limits"]) as attacker,
        lease(mounted["usage"], "F_WRLCK") as second,
        lease(mounted["lib"], "F_WRLCK") as third,
    ):
        assert [attacker.said, second.said, third.said] == ["ready"] * 3

        node.start_agent()
        node.wait_registered()
        node.config.write_text(LOWERED)
        wait_until(lambda: node.limit(honest).memory_limit_bytes == GIB)
        assert node.limit(node.admit("next", PAIR)).memory_limit_bytes == GIB
        assert node.page("/healthz")
        assert "vgpu_container_memory_limit_bytes" in node.page("/metrics")

        if not is_leased(mounted["limits"]):
            pytest.skip("the kernel ended the lease before all of this was over")
        assert node.limit(hostile).memory_limit_bytes == 2 * GIB, "those of before hold"
        assert 'msg="a container keeps its limits file busy"' in node.log.read_text()
    wait_until(lambda: node.limit(hostile).memory_limit_bytes == GIB)
    assert mounted["limits"].stat().st_ino == inode, "the container sees them"


def test_a_lease_that_is_taken_again_and_again_ends_all_the_same(node: ProcessNode) -> None:
    hostile = node.admit("hostile", PAIR)
    limits = files(node, hostile)["limits"]
    node.kill_agent()
    wait_until_lost(node.kubelet)
    node.config.write_text(LOWERED)
    with lease(limits, renew="broken") as attacker:
        assert attacker.said == "ready"

        node.start_agent()
        node.wait_registered()

        wait_until(lambda: node.limit(hostile).memory_limit_bytes == GIB)
        assert attacker.word().startswith("refused:")
