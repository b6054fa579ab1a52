"""The agent's own state: the pages ``/healthz`` and ``/readyz``, and what ``/v1/state`` says.

*Healthy*: the loop and the helper threads (`heartbeats`) came round recently, so nothing hangs; a
probe that fails restarts the agent. *Ready*: a config is in force, and the kubelet has every
resource and listens to its devices. Neither depends on MPS or on the API server. Values come from
the agent's parts, read without a lock; each is replaced whole.
"""

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from werkzeug.wrappers import Request, Response

from deviceplugin import runtime
from deviceplugin.config.effective import effective
from deviceplugin.config.reload import ConfigWatch
from deviceplugin.core.service import SliceService
from deviceplugin.model.allocations import Allocation
from deviceplugin.pages.config import ConfigInForce
from deviceplugin.pages.state import (
    AgentReport,
    ReportedAgent,
    ReportedAllocation,
    ReportedConfig,
    ReportedDevice,
    ReportedGpu,
    ReportedInjection,
    ReportedResource,
)
from deviceplugin.policy.devices.mig_layout import mig_differences
from deviceplugin.policy.limits.resolver import ResolvedLimits
from deviceplugin.watch.report import WatchFindings
from libvgpu.version import installed_version

from .pages import line

#: Longer than any call of a duty may take (registration and MPS have timeouts of seconds).
LOOP_LATE_S = 30.0

Registrations = Mapping[str, float | None]


def loop_problem(turned_at_s: float, now_s: float) -> str | None:
    """Returns why the agent is not healthy, None where it is.

    Args:
        turned_at_s: when its loop last came round.
        now_s: on the same clock.
    """
    late_s = now_s - turned_at_s
    return (
        None if late_s <= LOOP_LATE_S else f"the agent's main loop has not run for {late_s:.0f} s"
    )


def ready_problem(registrations: Registrations, unheard: Collection[str] = ()) -> str | None:
    """Returns why the agent is not ready, None where it is.

    Args:
        unheard: resources that the kubelet took and does not listen to.
    """
    missing = [resource for resource, since in registrations.items() if since is None]
    if missing:
        return f"not registered with the kubelet: {', '.join(missing)}"
    if unheard:
        return f"registered, but the kubelet does not listen: {', '.join(unheard)}"
    return None


@dataclass(frozen=True, slots=True)
class Identity:
    """What never changes while the agent runs.

    Attributes:
        node_name: of the Node.
        shim_build: the build id that new containers get.
    """

    node_name: str
    shim_build: str


class AgentState:
    """What the agent's parts say of themselves."""

    def __init__(  # noqa: PLR0913 - a source for each part of the page
        self,
        identity: Identity,
        watch: ConfigWatch,
        service: SliceService,
        registrations: Callable[[], Registrations],
        findings: Callable[[], WatchFindings] = WatchFindings,
        label_problem: Callable[[], str] = str,
        injection: Callable[[], ReportedInjection] = ReportedInjection,
        clock: Callable[[], float] = runtime.monotonic,
        pods_problem: Callable[[], str] = str,
        publish_problem: Callable[[], str] = str,
        sees_node_pids: bool = True,
        helper_problem: Callable[[], str | None] = lambda: None,
        unheard: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """Counts the loop as having come round just now.

        Args:
            watch: of the config.
            registrations: each resource with when it was registered (epoch).
            findings: what the memory watch has found.
            injection: how containers get their GPUs (`NodeInjection.shown`).
            label_problem: why the label that chooses a config is not told; empty where it is.
            clock: seconds, from any start.
            pods_problem: why the pods of this node are not followed; empty while they are.
            publish_problem: why schedulers are not told what the node has; empty while they are.
            sees_node_pids: this process has the node's pids (`pid_visibility.sees_node_pids`).
            unheard: resources that the kubelet took and does not listen to.
            helper_problem: which helper threads are late; None where none is.
        """
        self._helper_problem, self._unheard = helper_problem, unheard
        self._publish_problem = publish_problem
        self._pods_problem = pods_problem
        self._watch, self._service, self._findings = watch, service, findings
        self._registrations, self._clock = registrations, clock
        self._injection = injection
        self._label_problem = label_problem
        self._turned_at_s = clock()
        self._shim_build = identity.shim_build
        self._agent = ReportedAgent(
            version=installed_version(),
            pid=os.getpid(),
            node=identity.node_name,
            started_at=runtime.epoch(),
            sees_node_pids=sees_node_pids,
        )

    def turned(self) -> None:
        """Notes that the loop came round."""
        self._turned_at_s = self._clock()

    def healthz(self, request: Request) -> Response:
        """Answers ``/healthz``."""
        return _verdict(self._hangs())

    def readyz(self, request: Request) -> Response:
        """Answers ``/readyz``."""
        return _verdict(ready_problem(self._registrations(), self._unheard()))

    def _hangs(self) -> str | None:
        return loop_problem(self._turned_at_s, self._clock()) or self._helper_problem()

    def config(self) -> ConfigInForce:
        """Returns what ``/v1/config`` says."""
        watch = self._watch
        return ConfigInForce(
            path=str(Path(watch.in_force.place).absolute()),
            values=tuple(effective(watch.config)),
            name=watch.in_force.name,
            is_kept=watch.is_kept,
        )

    def state(self) -> AgentReport:
        """Returns what ``/v1/state`` says."""
        node, mig_layouts = self._service.state, self._watch.config.mig_layouts
        return AgentReport(
            agent=self._agent,
            config=_config(self._watch, self._label_problem()),
            resources=tuple(
                ReportedResource(name, since) for name, since in self._registrations().items()
            ),
            shim_build=self._shim_build,
            loop_problem=self._hangs(),
            podresources_problem=self._service.podresources_problem,
            pods_problem=self._pods_problem(),
            publish_problem=self._publish_problem(),
            mps_gpus=tuple(node.mps_gpus()),
            unhealthy_gpus=dict(node.unhealthy),
            left_out_gpus=dict(node.left_out),
            driver_problem=node.driver_problem,
            watch=self._findings().shown(),
            injection=self._injection(),
            draining_gpus=dict(node.draining),
            withheld_gpus={each.gpu.uuid: each.reason for each in node.layout.withheld},
            unmatched_entries=tuple(path.removeprefix("$.") for path in node.layout.unmatched),
            mig_differences={
                each.gpu.uuid: str(each) for each in mig_differences(mig_layouts, node.gpus)
            },
            devices=tuple(
                ReportedDevice(each.resource, id=each.device_id, owner=str(each.owner or ""))
                for each in node.held.values()
            ),
            allocations=tuple(
                _allocation(allocation, resolved)
                for allocation, resolved in self._service.resolved()
            ),
            unheard_resources=tuple(self._unheard()),
        )


def _config(watch: ConfigWatch, label_problem: str) -> ReportedConfig:
    """Returns which config is in force, and why the present content is not where it is not."""
    config, problem = watch.config, watch.problem
    return ReportedConfig(
        path=str(Path(watch.present.place).absolute()),
        digest=config.digest,
        rules=len(config.rules),
        error=problem.message if problem else None,
        hint=problem.hint if problem else None,
        in_part=watch.in_part,
        name=watch.in_force.name,
        chosen_by=watch.in_force.chosen_by,
        is_kept=watch.is_kept,
        label_problem=label_problem,
    )


def _allocation(allocation: Allocation, resolved: ResolvedLimits) -> ReportedAllocation:
    """Returns what an allocation asked for, and where each value of its limits comes from."""
    asked = {device.uuid: device for device in resolved.asked.devices}
    return ReportedAllocation(
        allocation=allocation.allocation_id,
        owner=str(allocation.owner or "unknown"),
        devices=tuple(
            ReportedGpu(
                gpu=device.uuid,
                core=str(origins.core),
                memory=str(origins.memory),
                compute=str(origins.compute),
                asked_core_percent=asked[device.uuid].core_percent,
                asked_memory_bytes=asked[device.uuid].memory_limit_bytes,
            )
            for device, origins in zip(resolved.limits.devices, resolved.origins, strict=True)
        ),
        shim_build=allocation.shim_build,
    )


def _verdict(problem: str | None) -> Response:
    if problem is None:
        return line(HTTPStatus.OK, "ok")
    return line(HTTPStatus.SERVICE_UNAVAILABLE, problem)
