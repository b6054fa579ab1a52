"""A simulated machine under kubelet stand-in, agent and MPS runner, as their users start them.

The containers' programs run under the shim with what the kubelet was answered.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from deviceplugin.policy.limits.asked import CONTAINER_PIPE_DIRECTORY
from deviceplugin.testing import AdmittedPod, ContainerManifest, PodManifest, StandInKubelet
from libvgpu.artifacts import SIM_LIBRARY_DIR, shim_path
from libvgpu.limits import DeviceLimit
from libvgpu.region import read_limits
from libvgpu.sim import PROFILES, Machine
from support import ROOT, Compile
from support.lines import start_listening
from support.node.mps_node import Client, MpsNode
from support.waiting import PATIENCE_S


@dataclass
class Cluster(MpsNode):
    """The node with a kubelet stand-in and an agent that starts the runner itself.

    Attributes:
        family: of all its GPUs.
    """

    family: str = "mps"

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
        resources = [f"nvidia.com/{self.family}-{half}" for half in ("core", "memory")]
        self.kubelet.wait_for_resources(resources, PATIENCE_S)
        return agent

    def admit(self, name: str, core: int | None, memory: int | None = None) -> AdmittedPod:
        asked = {"core": core, "memory": memory}
        limits = {f"nvidia.com/{self.family}-{h}": n for h, n in asked.items() if n is not None}
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
        process = start_listening(
            [self.program],
            {**self.machine.environment({"PATH": os.defpath}), **environment},
            stderr=None,
        )
        self.started.append(process)
        return Client(process)

    def close(self) -> None:
        super().close()
        self.kubelet.stop()


@contextlib.contextmanager
def running_cluster(
    compile_program: Compile, family: str = "mps", sharing: str = "family: mps", shared: int = 2
) -> Iterator[Cluster]:
    """Gives one with two GPUs, of which the first ones are shared as an entry of the config says.

    Args:
        shared: how many.
    """
    program = compile_program("mps_steady.c", flags=(f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1"))
    # Short, whatever the test is called: a socket's path has room for 107 bytes.
    with tempfile.TemporaryDirectory(prefix="vgpu-", dir="/tmp") as name:
        machine = Machine.create([PROFILES["a100-80g"]] * 2, Path(name) / "machine")
        cluster = Cluster(machine, Path(name), program, family=family)
        cluster.share(range(shared), sharing)
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
