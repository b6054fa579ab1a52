"""One container of the demo: what it asked for, its process, and what that has said so far.

The client prints JSON lines (deploy/examples/client/client.py). They are kept by phase, in order;
`wait_for` returns the n-th line of a phase and fails when any process of the demo ends meanwhile.
"""

import json
import queue
import time
from dataclasses import dataclass
from typing import Any

from deviceplugin.model.agent_config import AgentConfig
from deviceplugin.model.units import Half, resource_name
from deviceplugin.testing import AdmittedPod, ContainerManifest, PodManifest
from libvgpu.errors import UsageError, VgpuError
from libvgpu.limits import Family

from .children import Child, Children

_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Asked:
    """A slice as its manifest asks for it."""

    family: Family
    core_percent: int
    memory_bytes: int


def asked_by(pod: PodManifest, container: ContainerManifest, config: AgentConfig) -> Asked:
    """Returns what a container asks for, in bytes and percent.

    Raises:
        UsageError: it does not ask for core and memory of one family that the config shares.
    """
    domain = config.resource_domain
    for entry in config.fractional:
        core = container.limits.get(resource_name(domain, entry.family, Half.CORE))
        memory = container.limits.get(resource_name(domain, entry.family, Half.MEMORY))
        if core and memory:
            return Asked(entry.family, core, memory * entry.memory_unit_bytes)
    raise UsageError(
        f"{pod.source}: container {container.name} asks for {dict(container.limits)}: the demo "
        "shows containers that ask for core and memory of one family"
    )


@dataclass(slots=True)
class DemoContainer:
    """A running container.

    Attributes:
        pod: the admitted pod.
        manifest: of this container.
        asked: what the manifest asks for.
        gpu_uuid: the GPU it was given.
        child: its process.
        notes: what could not be honoured.
        history: what the process said, by phase.
    """

    pod: AdmittedPod
    manifest: ContainerManifest
    asked: Asked
    gpu_uuid: str
    child: Child
    notes: tuple[str, ...]
    history: dict[str, list[dict[str, Any]]]

    @property
    def name(self) -> str:
        """``pod/container``."""
        return f"{self.pod.manifest.name}/{self.manifest.name}"

    def has_said(self, phase: str, count: int) -> bool:
        """Tells whether it has printed ``count`` lines of a phase."""
        self._take_lines()
        return len(self.history.get(phase, ())) >= count

    def wait_for(
        self, phase: str, number: int, timeout_s: float, children: Children
    ) -> dict[str, Any]:
        """Returns line ``number`` (from 0) of a phase.

        Raises:
            VgpuError: it did not come in time, or a process of the demo ended.
        """
        deadline = time.monotonic() + timeout_s
        while not self.has_said(phase, number + 1):
            children.check()
            if time.monotonic() > deadline:
                words = self.child.last_words()
                raise VgpuError(
                    f"{self.name} did not print {phase} within {timeout_s:.0f} s"
                    + (f"; it said: {words}" if words else "")
                )
            time.sleep(_POLL_S)
        return self.history[phase][number]

    def _take_lines(self) -> None:
        while True:
            try:
                line = self.child.lines.get_nowait()
            except queue.Empty:
                return
            try:
                said = json.loads(line)
                self.history.setdefault(said["phase"], []).append(said)
            except (ValueError, KeyError, TypeError) as error:
                raise VgpuError(
                    f"{self.name} printed {line.strip()!r}: not a line of it"
                ) from error
