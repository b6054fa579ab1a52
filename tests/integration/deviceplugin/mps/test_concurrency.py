"""Containers of family vgpu as clients of one MPS server (`concurrency: mps`)."""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from deviceplugin.policy.limits.asked import CONTAINER_PIPE_DIRECTORY
from libvgpu.limits import ComputeMode, Family
from libvgpu.region import read_limits
from libvgpu.sim import faults
from support import Compile
from support.node.in_process import wait_until_lost
from support.node.mps_cluster import Cluster, device_of, kill_everything_of, running_cluster
from support.node.mps_node import DEFAULT_MODE, EXCLUSIVE_PROCESS, Client
from support.waiting import PATIENCE_S, wait_until

GIB = 1 << 30
SHARING = "family: vgpu, concurrency: mps"
FAULTED = "a fault of one MPS client ended the work of all of them"
#: As the driver answers a context that an uncorrectable error broke.
ECC_UNCORRECTABLE = 214


@pytest.fixture
def cluster(compile_program: Compile) -> Iterator[Cluster]:
    with running_cluster(compile_program, "vgpu", SHARING) as cluster:
        yield cluster


@pytest.fixture
def one_gpu(compile_program: Compile) -> Iterator[Cluster]:
    """All containers are on its first GPU."""
    with running_cluster(compile_program, "vgpu", SHARING, shared=1) as cluster:
        yield cluster


def index_of(cluster: Cluster, environment: dict[str, str]) -> int:
    return cluster.uuids.index(environment["CUDA_VISIBLE_DEVICES"])


def met(program: Client) -> bool:
    return program.ask()[1] == ECC_UNCORRECTABLE


def test_tenants_are_clients_of_one_server_and_the_shim_holds_share_and_memory(
    one_gpu: Cluster,
) -> None:
    cluster, index = one_gpu, 0
    slices = [cluster.begin(cluster.admit(f"p{core}", core, 8)) for core in (30, 70)]
    programs = [cluster.run(environment) for environment in slices]

    assert all(program.works() for program in programs)
    assert cluster.mode(index) == EXCLUSIVE_PROCESS
    assert sorted(cluster.clients(index)) == sorted(p.process.pid for p in programs)
    # No share of threads and no memory is held by MPS, neither asked for nor in its books.
    for environment in slices:
        assert [name for name in environment if name.startswith("CUDA_MPS")] == [
            "CUDA_MPS_PIPE_DIRECTORY"
        ]
    living = [client for client in cluster.machine.books()[index].clients if client.alive]
    assert [client.percentage for client in living] == [100, 100]
    for environment, percent in zip(slices, (30, 70), strict=True):
        device = device_of(environment)
        assert read_limits(Path(environment["VGPU_DIR"])).limits.family is Family.VGPU
        assert (device.core_percent, device.compute_mode) == (percent, ComputeMode.STRICT)
        assert device.memory_limit_bytes == 8 * GIB
        assert (device.mps_thread_percentage, device.mps_pinned_bytes) == (0, 0)
        assert device.mps_pipe_directory == CONTAINER_PIPE_DIRECTORY
        assert device.is_mps_client


def test_a_killed_agent_finds_its_clients_again_from_its_checkpoint_and_without(
    cluster: Cluster,
) -> None:
    environment = cluster.begin(cluster.admit("p", 30, 8))
    program = cluster.run(environment)
    index = index_of(cluster, environment)
    before = cluster.wait_phase(index)

    for is_lost in (False, True):
        kill_everything_of(cluster.agent)
        wait_until_lost(cluster.kubelet)
        if is_lost:
            (cluster.base / "s" / "checkpoint.json").unlink()
        cluster.agent = cluster.start_agent()
        neighbour = cluster.run(cluster.begin(cluster.admit(f"after-{is_lost}", 5, 2)))

        assert program.works()
        assert neighbour.works()
        assert cluster.gpu(index) == before  # the same daemon, the same server
        assert device_of(environment).is_mps_client
        assert "draining" not in (cluster.base / "agent.log").read_text()


def test_several_whole_gpus_are_without_mps(cluster: Cluster) -> None:
    pod = cluster.admit("two", 200)

    options = cluster.kubelet.run_options(pod, "c")

    assert sorted(options.envs["NVIDIA_VISIBLE_DEVICES"].split(",")) == sorted(cluster.uuids)
    assert not [name for name in options.envs if name.startswith("CUDA_MPS")]
    assert CONTAINER_PIPE_DIRECTORY not in {mount.container_path for mount in options.mounts}
    assert cluster.state().gpus == {}
    assert [cluster.mode(0), cluster.mode(1)] == [DEFAULT_MODE, DEFAULT_MODE]


def test_a_changed_concurrency_drains_and_then_starts_nobody_under_mps(cluster: Cluster) -> None:
    first, second = (cluster.admit(f"p{n}", 60, 8) for n in range(2))  # one on each GPU
    slices = [cluster.begin(pod) for pod in (first, second)]
    programs = [cluster.run(environment) for environment in slices]
    index = index_of(cluster, slices[0])

    cluster.share(range(2), "family: vgpu")
    log = cluster.base / "agent.log"
    wait_until(lambda: log.read_text().count("GPU draining") == 2, "both drain")
    assert "vgpu strict under one MPS server by units of" in log.read_text()
    assert all(program.works() for program in programs)
    assert cluster.run(slices[1]).works()  # and they restart as they were
    programs[0].end()
    cluster.kubelet.finish(first)
    wait_until(lambda: "GPU sharing changed" in log.read_text(), "the first is shared again")
    late = cluster.begin(cluster.admit("late", 10, 4))

    assert index_of(cluster, late) == index
    assert "CUDA_MPS_PIPE_DIRECTORY" not in late
    assert not device_of(late).is_mps_client
    assert cluster.mode(index) == DEFAULT_MODE  # before it starts, not some time later
    assert cluster.run(late).works()
    assert programs[1].works()


@pytest.mark.timing
def test_a_fault_of_one_client_is_told_to_every_pod_that_had_a_process(one_gpu: Cluster) -> None:
    cluster, index = one_gpu, 0
    slices = [cluster.begin(cluster.admit(name, 20, 4)) for name in ("a", "b", "idle")]
    programs = [cluster.run(environment) for environment in slices[:2]]
    assert all(program.works() for program in programs)
    server = cluster.wait_phase(index).server
    time.sleep(3)  # a look of the agent at who runs

    faults.inject_xid(cluster.machine, index, 94)
    for program in programs:
        wait_until(partial(met, program), "it meets the fault")
        program.end()

    log = cluster.base / "agent.log"
    wait_until(lambda: log.read_text().count(FAULTED) == 2, "both are told", PATIENCE_S)
    time.sleep(3)
    told = [line for line in log.read_text().splitlines() if FAULTED in line]
    assert sorted(line.partition("owner=")[2].split()[0] for line in told) == [
        "default/a/c",
        "default/b/c",
    ]
    assert cluster.gpu(index).server == server  # it lives on
    assert (cluster.gpu(index).faults, cluster.gpu(index).restarts) == (1, 0)
    assert cluster.run(slices[0]).works()
