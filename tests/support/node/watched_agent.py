"""A node with its agent in this process, as a scheduler sees it and without an API server.

What the agent would publish is taken from its state, and it is told of pods when a test binds them.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deviceplugin import agent
from deviceplugin.kube.node_pods import PodTable
from deviceplugin.model.chosen_gpus import ChosenGpus
from deviceplugin.model.gpus import Gpu, GpuListing
from deviceplugin.model.pod_requests import ContainerKind, PodRequest
from deviceplugin.policy.bound_pods import BoundPods
from deviceplugin.policy.published_inventory import NodeMoment, published_node
from deviceplugin.policy.published_slices import Holdings
from deviceplugin.scheduler.search.node_view import NodeView, view_of
from deviceplugin.store.node_state import NodeState
from deviceplugin.testing import AdmittedPod, ContainerManifest, PodManifest
from support.node.in_process import InProcessNode, running_node

NODE = "test-node"


class ToldPods:
    """The pods of the node, as far as a test told of them; in the place of `FollowedPods`, too."""

    def __init__(self) -> None:
        self.table = PodTable(NODE)

    def seen(self) -> BoundPods:
        return self.table.seen(True)

    def wait(self, until: Callable[[BoundPods], bool], timeout_s: float) -> BoundPods:
        return self.table.wait(until, timeout_s)

    def hurry(self) -> None:
        """See `PodsOfNode`."""

    @property
    def source(self) -> "ToldPods":
        return self

    def start(self) -> None:
        """Nobody is followed."""

    def stop(self) -> None:
        """Nobody is followed."""

    def problem(self) -> str:
        return ""


class WatchedAgent:
    """The node."""

    def __init__(self, node: InProcessNode, states: list[NodeState], pods: ToldPods | None) -> None:
        self.node, self._states, self._pods = node, states, pods

    def view(self) -> NodeView:
        """What is free, as the agent publishes it; by then the kubelet knows it, too."""
        state = self._states[-1]
        with state.lock:
            state.wait_until_known()
            book = state.book
            holdings = Holdings(tuple(book.allocations.values()), book.shared_units())
            moment = NodeMoment(state.layout, holdings, state.held, state.unhealthy)
        return view_of(NODE, published_node(moment))

    def bind(
        self, pod: PodRequest, chosen: Mapping[str, tuple[str, ...]] | None = None
    ) -> PodManifest:
        """Binds a pod, with the GPUs that were chosen for it."""
        if self._pods is not None:
            found = ChosenGpus(NODE, chosen) if chosen is not None else None
            told = PodRequest(
                pod.uid, pod.namespace, pod.name, pod.containers, node=NODE, chosen=found
            )
            self._pods.table.put(pod.uid, (pod.namespace, pod.name), told)
        made = [
            (
                each.kind,
                ContainerManifest(
                    each.name, limits=each.amounts, sidecar=each.kind is ContainerKind.SIDECAR
                ),
            )
            for each in pod.containers
        ]
        return PodManifest(
            pod.name,
            tuple(each for kind, each in made if kind is ContainerKind.APP),
            pod.namespace,
            tuple(each for kind, each in made if kind is not ContainerKind.APP),
        )

    def admit(self, manifest: PodManifest) -> AdmittedPod:
        """Admits a pod and starts its containers in their order.

        Raises:
            AllocationRefused: as the agent says it.
        """
        pod = self.node.kubelet.admit(manifest)
        for container in pod.containers:
            self.node.kubelet.run_options(pod, container.manifest.name)
        return pod


@contextmanager
def watched_agent(
    monkeypatch: pytest.MonkeyPatch,
    gpus: tuple[Gpu, ...],
    config: str,
    is_told: bool,
    seed: int = 1,
) -> Iterator[WatchedAgent]:
    """Starts one.

    Args:
        is_told: of the pods that are bound; else it knows of none.
    """
    states: list[NodeState] = []
    pods = ToldPods() if is_told else None
    make = NodeState.__init__

    def noted(state: NodeState, *args: Any, **named: Any) -> None:
        make(state, *args, **named)
        states.append(state)

    def made(base: Path) -> InProcessNode:
        node = InProcessNode(base, seed)
        node.inventory.found = GpuListing(gpus)
        return node

    monkeypatch.setattr(NodeState, "__init__", noted)
    if pods is not None:
        monkeypatch.setattr(agent, "FollowedPods", lambda *args: pods)
    with running_node(monkeypatch, made, config, in_world=True) as node:
        yield WatchedAgent(node, states, pods)
