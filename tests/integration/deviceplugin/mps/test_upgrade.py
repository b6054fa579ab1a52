"""MPS clients under an agent that is killed and upgraded, and whole GPUs next to them.

The agent is a process as its users start it, with a runner of its own making, on a simulated
machine; the containers' programs run under the shim with what the kubelet was answered.
"""

import os
import signal
from collections.abc import Iterator

import pytest

from deviceplugin.testing import AdmissionFailed
from support import Compile
from support.node.in_process import wait_until_lost
from support.node.mps_cluster import Cluster, device_of, kill_everything_of, running_cluster
from support.node.mps_node import DEFAULT_MODE, EXCLUSIVE_PROCESS
from support.waiting import bar, wait_until

GIB = 1 << 30
CLIENTS = 8


@pytest.fixture
def cluster(compile_program: Compile) -> Iterator[Cluster]:
    with running_cluster(compile_program) as cluster:
        yield cluster


def test_no_client_notices_that_the_agent_is_killed_and_upgraded(cluster: Cluster) -> None:
    shares = [8 + index for index in range(CLIENTS)]  # each its own
    slices = [cluster.begin(cluster.admit(f"p{n}", core=n, memory=4)) for n in shares]
    programs = [cluster.run(environment) for environment in slices]
    assert [program.first for program in programs] == [0] * CLIENTS
    before = [cluster.wait_phase(0), cluster.wait_phase(1)]
    books = [client for gpu in cluster.machine.books() for client in gpu.clients if client.alive]
    by_pid = {client.pid: client.percentage for client in books}
    assert [by_pid[program.process.pid] for program in programs] == shares

    kill_everything_of(cluster.agent)
    wait_until_lost(cluster.kubelet)
    assert all(program.works() for program in programs)
    cluster.agent = cluster.start_agent()
    wait_until(
        lambda: "MPS daemons adopted" in (cluster.base / "agent.log").read_text(), "it is adopted"
    )

    assert all(program.works() for program in programs)
    listed = [*cluster.clients(0), *cluster.clients(1)]
    assert sorted(listed) == sorted(program.process.pid for program in programs)
    ninth = cluster.run(cluster.begin(cluster.admit("ninth", core=3, memory=1)))
    assert ninth.works()
    assert [cluster.gpu(0), cluster.gpu(1)] == before  # the same daemons and servers


def test_a_whole_gpu_is_bare_while_its_container_runs(cluster: Cluster) -> None:
    part = cluster.begin(cluster.admit("part", core=30, memory=8))
    steady = cluster.run(part)
    shared = cluster.uuids.index(part["CUDA_VISIBLE_DEVICES"])
    whole = 1 - shared
    cluster.wait_phase(whole)
    assert cluster.mode(whole) == EXCLUSIVE_PROCESS

    pod = cluster.admit("whole", core=100, memory=16)
    environment = cluster.begin(pod)

    assert environment["CUDA_VISIBLE_DEVICES"] == cluster.uuids[whole]
    assert not [name for name in environment if name.startswith("CUDA_MPS")]
    assert cluster.mode(whole) == DEFAULT_MODE
    assert cluster.uuids[whole] not in cluster.state().gpus
    limit = device_of(environment)
    assert (limit.memory_limit_bytes, limit.mps_pipe_directory) == (16 * GIB, "")
    alone = [cluster.run(environment), cluster.run(environment)]  # two processes, no MPS
    assert all(program.works() for program in alone)
    assert {c.percentage for c in cluster.machine.books()[whole].clients if c.alive} == {0}
    with pytest.raises(AdmissionFailed):
        cluster.admit("two", core=200)

    for program in alone:
        program.end()
    cluster.kubelet.finish(pod)

    cluster.wait_phase(whole)
    assert cluster.mode(whole) == EXCLUSIVE_PROCESS
    assert steady.works()


@pytest.mark.parametrize("most_s", bar(5.0))
def test_the_end_of_a_server_is_told_within_seconds(cluster: Cluster, most_s: float) -> None:
    environment = cluster.begin(cluster.admit("p", core=10, memory=4))
    index = cluster.uuids.index(environment["CUDA_VISIBLE_DEVICES"])
    assert cluster.run(environment).works()

    os.kill(cluster.wait_phase(index).server, signal.SIGKILL)

    log = cluster.base / "agent.log"
    wait_until(
        lambda: "MPS server ended, its clients lost their work" in log.read_text(),
        "the agent says it",
        most_s,
    )
    assert "owner=default/p/c" in log.read_text().partition("its clients lost their work")[2]
    cluster.wait_phase(index)
    assert cluster.run(environment).works()
