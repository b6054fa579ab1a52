"""A kubelet stand-in, and the agent as its users start it, on simulated GPUs found by NVML."""

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from deviceplugin.testing import AdmittedPod, ContainerManifest, PodManifest, StandInKubelet
from libvgpu import region
from libvgpu.limits import DeviceLimit
from libvgpu.sim import Machine, Profile, parse_spec
from support import ROOT, warm
from support.node.in_process import wait_until_lost
from support.waiting import PATIENCE_S
from support.warm_program import Program

CORE, MEMORY = "nvidia.com/vgpu-core", "nvidia.com/vgpu-memory"
SLICES = (CORE, MEMORY)
CONFIG = "version: v1\nsharing: {fractional: [{family: vgpu, memoryUnit: 1Gi}]}\n"


class SimulatedNode:
    """One simulated machine with its agent in a process of its own.

    Attributes:
        agent: None while it does not run.
    """

    def __init__(
        self,
        base: Path,
        spec: str | Sequence[Profile],
        config: str = CONFIG,
        resources: Sequence[str] = SLICES,
        options: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        program: Sequence[str] = ("-m", "deviceplugin"),
        prefix: Sequence[str] = (),
    ) -> None:
        """Starts both, and waits until the resources are offered.

        Args:
            base: a directory with a short name, since a socket's path has 107 bytes.
            spec: of the machine, as `parse_spec` reads it, or its GPUs.
            options: of the agent, more than it always gets.
            variables: of its environment.
            program: what Python runs as the agent.
            prefix: of the agent's command line.
        """
        self.program, self.prefix = tuple(program), tuple(prefix)
        self.base, self.run_dir, self.config = base, base / "r", base / "config.yaml"
        profiles = parse_spec(spec).profiles if isinstance(spec, str) else spec
        self.machine = Machine.create(profiles, base / "machine")
        self.resources, self.options = list(resources), list(options)
        self.variables = dict(variables or {})
        self.config.write_text(config)
        self.kubelet = StandInKubelet(base / "k", seed=1, makes_pod_directories=True)
        self.kubelet.start()
        self.agent: Program | subprocess.Popen[bytes] | None = None
        self.start_agent()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start_agent(self, waits: bool = True) -> None:
        """Starts the agent over what is there, and waits until its resources are offered."""
        words = [
            *self.program, f"--config={self.config}", f"--run-dir={self.run_dir}",
            f"--kubelet-dir={self.base / 'k'}", f"--state-dir={self.base / 's'}",
            "--metrics-address=127.0.0.1:0", "--no-spawn-mps", *self.options,
        ]  # fmt: skip
        environment = self.machine.environment(os.environ) | self.variables
        with open(self.base / "log", "ab") as log:
            if self.prefix:
                command = [*self.prefix, sys.executable, *words]
                self.agent = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=log)
            else:
                self.agent = warm.start(words, environment, log)
        if waits:
            self.kubelet.wait_for_resources(self.resources, PATIENCE_S)

    def stop_agent(self, number: int = signal.SIGTERM) -> int:
        """Ends the agent by a signal, and returns with which status it ended."""
        assert self.agent is not None
        self.agent.send_signal(signal.SIGKILL if self.prefix else number)
        status = self.agent.wait(PATIENCE_S)
        self.agent = None
        wait_until_lost(self.kubelet)
        return status

    @property
    def log(self) -> str:
        return (self.base / "log").read_text()

    def page(self, path: str) -> str:
        """Returns one of the agent's pages."""
        address = self.log.rpartition("metrics=")[2].split()[0]
        with urllib.request.urlopen(f"http://{address}{path}", timeout=PATIENCE_S) as page:
            return str(page.read(), "utf-8")

    def admit_pod(self, name: str, limits: Mapping[str, int]) -> AdmittedPod:
        """Admits a pod with one container, ``c``."""
        return self.kubelet.admit(PodManifest(name, (ContainerManifest("c", limits=limits),)))

    def admit(self, name: str, **limits: int) -> AdmittedPod:
        """Admits a pod with one container; ``_`` in a resource's name stands for ``-``."""
        return self.admit_pod(
            name, {f"nvidia.com/{key.replace('_', '-')}": count for key, count in limits.items()}
        )

    def devices(self, pod: AdmittedPod) -> list[str]:
        """Returns the UUIDs that the pod's container is told of."""
        return self.kubelet.run_options(pod, "c").envs["NVIDIA_VISIBLE_DEVICES"].split(",")

    def slice_of(self, pod: AdmittedPod) -> Path:
        """Starts the pod's container and returns the directory of its slice."""
        options = self.kubelet.run_options(pod, "c")
        assert options.conflicts == ()
        mounts = {mount.container_path: Path(mount.host_path) for mount in options.mounts}
        assert all(path.exists() for path in mounts.values())
        return mounts["/run/vgpu/limits"].parent

    def limit(self, pod: AdmittedPod) -> DeviceLimit:
        """Starts the pod's container and returns the limits of its only GPU."""
        (device,) = region.read_limits(self.slice_of(pod)).limits.devices
        return device

    def close(self) -> None:
        """Ends all of it; a test may have stopped the agent."""
        if self.agent is not None:
            self.stop_agent()
        self.kubelet.stop()
        self.machine.remove()
