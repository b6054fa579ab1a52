"""MPS clients under an agent that is killed and upgraded, and whole GPUs next to them.

The agent is a process as its users start it, with a runner of its own making, on a simulated
machine; the containers' programs run under the shim with what the kubelet was answered.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from deviceplugin.policy.asked_limits import CONTAINER_PIPE_DIRECTORY
from deviceplugin.testing import (
    AdmissionFailed,
    AdmittedPod,
    ContainerManifest,
    PodManifest,
    StandInKubelet,
)
from libvgpu.artifacts import SIM_LIBRARY_DIR, shim_path
from libvgpu.limits import DeviceLimit
from libvgpu.region import read_limits
from libvgpu.sim import PROFILES, Machine
from support import IS_LONG, ROOT, Compile
from support.in_process_node import wait_until_lost
from support.mps_node import DEFAULT_MODE, EXCLUSIVE_PROCESS, Client, MpsNode
from support.waiting import PATIENCE_S, wait_until

GIB = 1 << 30
CLIENTS = 8
RESOURCES = ["nvidia.com/mps-core", "nvidia.com/mps-memory"]


class Cluster(MpsNode):
    """The node with a kubelet stand-in and an agent that starts the runner itself."""

    def open(self) -> None:
        self.kubelet = StandInKubelet(self.base / "k", seed=5)
        self.kubelet.start()
        self.agent = self.start_agent()

    def start_agent(self) -> "subprocess.Popen[str]":
        with open(self.base / "agent.log", "a") as log:
            agent = subprocess.Popen(
                [sys.executable, "-m", "deviceplugin", f"--config={self.base / 'config.yaml'}",
                 f"--kubelet-dir={self.base / 'k'}", f"--state-dir={self.base / 's'}",
                 f"--run-dir={self.run_dir}", "--metrics-address=127.0.0.1:0"],
                cwd=ROOT, env={**self.machine.environment(os.environ), "PYTHONPATH": str(ROOT)},
                stderr=log, text=True, start_new_session=True,
            )  # fmt: skip
        self.started.append(agent)
        self.kubelet.wait_for_resources(RESOURCES, PATIENCE_S)
        return agent

    def admit(self, name: str, core: int, memory: int | None = None) -> AdmittedPod:
        limits = {"nvidia.com/mps-core": core}
        if memory is not None:
            limits["nvidia.com/mps-memory"] = memory
        manifest = PodManifest(name, (ContainerManifest("c", limits=limits),))
        return self.kubelet.admit(manifest)

    def begin(self, pod: AdmittedPod) -> dict[str, str]:
        """Starts a pod's container; returns the environment of its programs, on this host."""
        options = self.kubelet.run_options(pod, "c")
        host = {m.container_path: m.host_path for m in options.mounts}
        envs = dict(options.envs)
        if "CUDA_MPS_PIPE_DIRECTORY" in envs:
            envs["CUDA_MPS_PIPE_DIRECTORY"] = host[CONTAINER_PIPE_DIRECTORY]
            assert host["/dev/shm"] == "/dev/shm"
        else:
            assert CONTAINER_PIPE_DIRECTORY not in host
        return {
            **envs,
            "CUDA_VISIBLE_DEVICES": envs["NVIDIA_VISIBLE_DEVICES"],
            "VGPU_DIR": str(Path(host["/run/vgpu/limits"]).parent),
            "LD_PRELOAD": str(shim_path()),
        }

    def run(self, environment: dict[str, str]) -> Client:
        process = subprocess.Popen(
            [self.program],
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**self.machine.environment({"PATH": os.defpath}), **environment},
        )
        self.started.append(process)
        return Client(process)

    def close(self) -> None:
        super().close()
        self.kubelet.stop()


@pytest.fixture
def cluster(compile_program: Compile) -> Iterator[Cluster]:
    program = compile_program("mps_steady.c", flags=(f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1"))
    # Short, whatever the test is called: a socket's path has room for 107 bytes.
    with tempfile.TemporaryDirectory(prefix="vgpu-", dir="/tmp") as name:
        machine = Machine.create([PROFILES["a100-80g"]] * 2, Path(name) / "machine")
        cluster = Cluster(machine, Path(name), program)
        try:
            cluster.open()
            yield cluster
        finally:
            cluster.close()


def device_of(environment: dict[str, str]) -> DeviceLimit:
    (device,) = read_limits(Path(environment["VGPU_DIR"])).limits.devices
    return device


def kill_everything_of(agent: "subprocess.Popen[str]") -> None:
    """Kills the agent, its process group and its descendants."""
    below = psutil.Process(agent.pid).children(recursive=True)
    os.kill(-agent.pid, signal.SIGKILL)
    for process in below:
        with contextlib.suppress(psutil.Error):
            process.kill()
    agent.wait(PATIENCE_S)


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


@pytest.mark.skipif(not IS_LONG, reason="in the long form only")
def test_two_whole_gpus_have_no_daemon(cluster: Cluster) -> None:
    pod = cluster.admit("two", core=200)

    options = cluster.kubelet.run_options(pod, "c")

    assert sorted(options.envs["NVIDIA_VISIBLE_DEVICES"].split(",")) == sorted(cluster.uuids)
    assert not [name for name in options.envs if name.startswith("CUDA_MPS")]
    assert cluster.state().gpus == {}
    assert [cluster.mode(0), cluster.mode(1)] == [DEFAULT_MODE, DEFAULT_MODE]


@pytest.mark.timing
def test_the_end_of_a_server_is_told_within_seconds(cluster: Cluster) -> None:
    environment = cluster.begin(cluster.admit("p", core=10, memory=4))
    index = cluster.uuids.index(environment["CUDA_VISIBLE_DEVICES"])
    time_limit = time.monotonic() + 5.0

    os.kill(cluster.wait_phase(index).server, signal.SIGKILL)

    log = cluster.base / "agent.log"
    wait_until(
        lambda: "MPS server ended, its clients lost their work" in log.read_text(),
        "the agent says it",
    )
    assert time.monotonic() < time_limit
    assert "owner=default/p/c" in log.read_text().partition("its clients lost their work")[2]
    cluster.wait_phase(index)
    assert cluster.run(environment).works()
