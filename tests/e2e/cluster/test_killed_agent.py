"""The agent is killed in the midst of an admission, at a point that is the same in every run.

Who changes limits takes the lock of a slice's files (`libvgpu.region_files.locked`). The first half
of a slice makes the files and needs none; whatever comes after it does, and the container's start.
So the test holds the lock, and the agent waits there until it is killed.

Between the halves it is killed in the long form; the gate's agents die there in test_kills.py.
"""

from pathlib import Path

import pytest

from deviceplugin.store.spare_files import COUNT
from libvgpu import allocation_dirs
from support.cluster.chart_on_cluster import NAMESPACE, all_are_ready, allocatable, pods_of_part
from support.cluster.pods import (
    assert_they_run_on,
    containers,
    deployment,
    pods_of,
    running_of,
    total_inside,
)
from support.cluster.real import RealCluster
from support.node.real import MARKS
from support.node.slices import GIB
from support.shim.held_locks import held_locks
from support.waiting import wait_until
from support.world.given_units import assert_nothing_is_given_twice

CORE, MEMORY = 60, 10

pytestmark = MARKS


def agent_of(cluster: RealCluster) -> str:
    """Returns the name of the agent's pod."""
    (agent,) = pods_of_part(cluster, "agent")
    return str(agent["metadata"]["name"])


def halves_given(cluster: RealCluster) -> int:
    """Returns how often the present agent has given half a slice."""
    log = cluster.kubectl("logs", agent_of(cluster), f"--namespace={NAMESPACE}")
    return log.count('msg="allocated"')


def wait_agent(cluster: RealCluster) -> None:
    """Waits until an agent serves again, and offers all."""
    wait_until(lambda: all_are_ready(cluster), "the agent is ready again")
    wait_until(lambda: allocatable(cluster).get("nvidia.com/vgpu-core") == 300, "all is offered")


def ready_made(cluster: RealCluster) -> list[Path]:
    """Returns the directories of ready-made files, empty until all are there."""
    found = [each for each in cluster.inside("/run/vgpu/spare").iterdir() if "-" not in each.name]
    return found if len(found) == COUNT else []


@pytest.mark.long
def test_an_agent_that_dies_between_the_halves_of_a_slice(cluster: RealCluster) -> None:
    before, given = containers(cluster), halves_given(cluster)
    with held_locks(wait_until(lambda: ready_made(cluster), "all files are made")) as locks:
        cluster.apply(deployment("halves", 1, CORE, MEMORY))
        wait_until(locks.is_waited_for, "one half is given, and the other one waits")
        assert halves_given(cluster) == given + 1
        cluster.end_container(agent_of(cluster), NAMESPACE)

    def replaced() -> list[str]:
        failed = [p for p in pods_of(cluster, "halves") if p["status"]["phase"] == "Failed"]
        return running_of(cluster, "halves") if failed else []

    (pod,) = wait_until(replaced, "the Deployment has another pod that runs")
    failed = [p["status"] for p in pods_of(cluster, "halves") if p["status"]["phase"] == "Failed"]
    print(f"{len(failed)} pods failed before one ran")
    assert {status["reason"] for status in failed} == {"UnexpectedAdmissionError"}, failed
    assert total_inside(cluster, pod) == MEMORY * GIB
    wait_agent(cluster)
    # The half of the pod that failed is free again: what fits only then runs.
    cluster.apply(deployment("halves", 3, CORE, MEMORY))
    wait_until(lambda: len(running_of(cluster, "halves")) == 2, "two of three have room")
    assert_nothing_is_given_twice(cluster)
    assert_they_run_on(cluster, before)
    cluster.kubectl("delete", "deployment", "halves")


def test_an_agent_that_dies_while_a_container_starts(cluster: RealCluster) -> None:
    before = containers(cluster)
    cluster.apply(deployment("starts", 1, CORE, MEMORY))
    (pod,) = wait_until(lambda: running_of(cluster, "starts"), "it runs")
    files = [
        each.directory
        for each in allocation_dirs.list_allocations(cluster.inside("/run/vgpu"))
        if each.meta.pod == pod
    ]

    with held_locks(files) as locks:
        cluster.end_container(pod)
        wait_until(locks.is_waited_for, "its start waits")
        cluster.end_container(agent_of(cluster), NAMESPACE)

    def runs_again() -> bool:
        (status,) = cluster.get("pods", pod)["status"]["containerStatuses"]
        return bool(status["restartCount"] and status["ready"])

    wait_until(runs_again, "the same pod runs again")
    assert any("PreStartContainer" in each for each in cluster.events("Failed"))
    assert total_inside(cluster, pod) == MEMORY * GIB
    wait_agent(cluster)
    assert_nothing_is_given_twice(cluster)
    assert_they_run_on(cluster, before)
    cluster.kubectl("delete", "deployment", "starts")
