"""Ends the agents, and has every node cleaned on which no pod has a slice.

A node is waited for until its agent and its MPS runner have ended: they would make again what is
removed, and have it mounted. Then it is left alone if a pod there asks for a slice, running or
about to start again: the kubelet would find its files gone. So it is if another release has an
agent there. The last word has the node itself (`host`), which looks at what is mounted. Pods that
are being deleted are waited for, up to the deadline.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from deviceplugin.kube.api_client import ApiUnreachable
from deviceplugin.log import event
from libvgpu.errors import VgpuError

from .cluster_calls import ClusterCalls
from .seen_pods import SeenPod, SeenPods

LOOK_EVERY_S = 1.0
HINT = "when no pod needs them, remove them by hand: docs/operations.md, Uninstall"


@dataclass(slots=True)
class Outcome:
    """What became of the nodes.

    Attributes:
        left: why each node that was left alone was.
    """

    cleaned: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)


class Cleaning:
    """One run over the cluster."""

    def __init__(
        self,
        pods: ClusterCalls,
        deadline_s: float,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        """Asks nothing yet.

        Args:
            deadline_s: from `run` on.
            wait: for so many seconds.
        """
        self._pods, self._deadline_s = pods, deadline_s
        self._clock, self._wait = clock, wait
        self._waiting: dict[str, str] = {}  # nodes that are not decided, and what each waits for
        self._started: set[str] = set()
        self._outcome = Outcome()

    def run(self, selector: str) -> Outcome:
        """Cleans what can be.

        Args:
            selector: of the nodes that agents run on.

        Raises:
            ApiRefused: it may not.
            ApiUnreachable: the API server does not answer from the beginning.
            VgpuError: nothing is being uninstalled.
        """
        others = self._pods.others()
        if others:
            raise VgpuError(
                f"the DaemonSet {others} is not one that Helm made, so this is not "
                "`helm uninstall` and nothing is removed; leave cleanHosts out of what "
                "`helm template` prints"
            )
        until_s = self._clock() + self._deadline_s
        nodes = self._pods.nodes(selector)
        self._waiting = dict.fromkeys(nodes, "the API server did not answer")
        event(logging.INFO, "agents are ended and nodes cleaned", nodes=len(nodes))
        self._pods.end_agents()
        while True:
            try:
                self._look(self._pods.look())
            except ApiUnreachable as error:
                event(logging.WARNING, "the API server does not answer", reason=error.message)
            if not self._waiting or self._clock() >= until_s:
                break
            self._wait(LOOK_EVERY_S)
        for node, what in self._waiting.items():
            self._leave(node, f"after {self._deadline_s:.0f} s {what}")
        self._end()
        return self._outcome

    def _look(self, seen: SeenPods) -> None:
        for node in sorted(self._waiting):
            agent, needing = seen.agents.get(node), seen.needing.get(node)
            pod = seen.cleaning.get(node)
            if agent is not None:
                self._waiting[node] = f"the pod {agent.metadata.name} has not ended"
            elif pod is not None:
                self._follow(node, pod)
            elif needing is not None:
                what = "is another release's" if needing.is_agent else "has a slice there"
                whose = f"{needing.metadata.namespace}/{needing.metadata.name}"
                self._waiting[node] = f"the pod {whose}, which {what}, has not ended"
                if not needing.metadata.deletion_timestamp:
                    self._leave(node, f"the pod {whose} {what}")
            else:
                self._waiting[node] = "the pod that cleans the node has not run"
                self._started.add(node)
                self._pods.start(node)
        self._waiting = {
            node: what
            for node, what in self._waiting.items()
            if node not in self._outcome.left and node not in self._outcome.cleaned
        }

    def _follow(self, node: str, pod: SeenPod) -> None:
        self._started.add(node)
        self._waiting[node] = f"the pod that cleans the node is {pod.status.phase or 'Pending'}"
        if pod.status.phase == "Succeeded":
            self._outcome.cleaned.append(node)
            event(logging.INFO, "a node is cleaned", node=node, removed=pod.last_words)
        elif pod.status.phase == "Failed":
            self._leave(node, pod.last_words or "the pod that cleans the node failed")

    def _leave(self, node: str, why: str) -> None:
        self._outcome.left[node] = why
        event(logging.WARNING, "a node is left alone", node=node, reason=why)

    def _end(self) -> None:
        """Removes the pods, and what cleaned nodes published; tells of the others."""
        try:
            for node in sorted(self._started):
                self._pods.end(node)
            self._pods.forget(self._outcome.cleaned)
            for node, why in sorted(self._outcome.left.items()):
                text = f"files of vgpu stay on this node: {why}; {HINT}"
                self._pods.tell(node, text)
        except ApiUnreachable as error:
            event(logging.WARNING, "the API server does not answer", reason=error.message)
