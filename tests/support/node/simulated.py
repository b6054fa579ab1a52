"""A kubelet stand-in, and the agent as its users start it, on simulated GPUs found by NVML."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from deviceplugin.testing import AdmittedPod, ContainerManifest, PodManifest, StandInKubelet
from libvgpu.sim import Machine, parse_spec
from support import warm
from support.node.in_process import wait_until_lost
from support.waiting import PATIENCE_S
from support.warm_program import Program


class SimulatedNode:
    """One simulated machine with its agent in a process of its own."""

    def __init__(
        self,
        base: Path,
        spec: str,
        config: str,
        resources: Sequence[str],
        options: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        program: Sequence[str] = ("-m", "deviceplugin"),
    ) -> None:
        """Starts both, and waits until the resources are offered.

        Args:
            base: a directory with a short name, since a socket's path has 107 bytes.
            spec: of the machine, as `parse_spec` reads it.
            options: of the agent, more than it always gets.
            variables: of its environment.
            program: what Python runs as the agent.
        """
        self.program = tuple(program)
        self.base = base
        self.machine = Machine.create(parse_spec(spec).profiles, base / "machine")
        self.resources, self.options = list(resources), list(options)
        self.variables = dict(variables or {})
        (base / "config.yaml").write_text(config)
        self.kubelet = StandInKubelet(base / "k", seed=1, makes_pod_directories=True)
        self.kubelet.start()
        self.agent: Program | None = None
        self.start_agent()

    def start_agent(self) -> None:
        with open(self.base / "log", "ab") as log:
            self.agent = warm.start(
                [*self.program, f"--config={self.base / 'config.yaml'}",
                 f"--run-dir={self.base / 'r'}", f"--kubelet-dir={self.base / 'k'}",
                 f"--state-dir={self.base / 's'}", "--metrics-address=127.0.0.1:0",
                 "--no-spawn-mps", *self.options],
                self.machine.environment(os.environ) | self.variables, log,
            )  # fmt: skip
        self.kubelet.wait_for_resources(self.resources, PATIENCE_S)

    def stop_agent(self) -> None:
        assert self.agent is not None
        self.agent.terminate()
        self.agent.wait(PATIENCE_S)
        self.agent = None
        wait_until_lost(self.kubelet)

    @property
    def log(self) -> str:
        return (self.base / "log").read_text()

    def admit(self, name: str, **limits: int) -> AdmittedPod:
        """Admits a pod with one container; ``_`` in a resource's name stands for ``-``."""
        asked = {f"nvidia.com/{key.replace('_', '-')}": count for key, count in limits.items()}
        return self.kubelet.admit(PodManifest(name, (ContainerManifest("c", limits=asked),)))

    def devices(self, pod: AdmittedPod) -> list[str]:
        """Returns the UUIDs that the pod's container is told of."""
        return self.kubelet.run_options(pod, "c").envs["NVIDIA_VISIBLE_DEVICES"].split(",")

    def close(self) -> None:
        """Ends all of it; a test may have stopped the agent."""
        if self.agent is not None:
            self.stop_agent()
        self.kubelet.stop()
        self.machine.remove()
