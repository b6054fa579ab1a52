"""Labels through the API server: in a NodeFeature object, or on the Node itself.

NFD makes labels of a NodeFeature. Where there is no NFD the Node is patched: an annotation keeps
the names of the labels that are ours, so that one which is no longer wanted is removed by whichever
agent comes next, and nobody else's is touched.

The calls are made in a thread, since the agent's loop never waits for the API server: the methods
of `ApiOutput` are called by the loop, what it applies by the thread.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from deviceplugin import runtime
from deviceplugin.heartbeats import Beat
from deviceplugin.log import LOGGER, event
from libvgpu.errors import VgpuError

RETRY_S = 30.0
NODE_NAME_LABEL = "nfd.node.kubernetes.io/node-name"
_MOST_ERROR = 300


class NodeApi(Protocol):
    """What the API server is asked; every call may raise VgpuError."""

    def node_metadata(self, node: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Returns labels and annotations of a Node."""

    def patch_node_metadata(self, node: str, values: Mapping[str, Any]) -> None:
        """Merges into the metadata of a Node; None removes a value."""

    def node_feature(self, name: str) -> Mapping[str, Any] | None:
        """Returns a NodeFeature of the agent's namespace, None where there is none."""

    def create_node_feature(self, name: str, values: Mapping[str, Any]) -> None:
        """Makes a NodeFeature in the agent's namespace."""

    def patch_node_feature(self, name: str, values: Mapping[str, Any]) -> None:
        """Merges into a NodeFeature."""


def apply_to_node(api: NodeApi, node: str, domain: str, labels: Mapping[str, str]) -> None:
    """Gives a Node these labels, and takes those that were ours and are not among them.

    Args:
        domain: of the annotation.

    Raises:
        VgpuError: the API server does not answer or refuses.
    """
    key = f"{domain}/vgpu.labels"
    present, annotations = api.node_metadata(node)
    owned = frozenset(filter(None, annotations.get(key, "").split(",")))
    changed: dict[str, str | None] = {k: v for k, v in labels.items() if present.get(k) != v}
    changed |= dict.fromkeys(k for k in owned - labels.keys() if k in present)
    names = ",".join(sorted(labels)) or None
    values: dict[str, Any] = {}
    if changed:
        values["labels"] = changed
    if annotations.get(key) != names:
        values["annotations"] = {key: names}
    if values:
        api.patch_node_metadata(node, values)


def apply_to_node_feature(api: NodeApi, node: str, labels: Mapping[str, str]) -> None:
    """Makes the NodeFeature of a Node have these labels and no others.

    Raises:
        VgpuError: the API server does not answer or refuses.
    """
    name = f"nvidia-features-for-{node}"  # as GFD calls it, so that its object is taken over
    found = api.node_feature(name)
    meant = {NODE_NAME_LABEL: node}
    if found is None:
        empty: dict[str, dict[str, str]] = {"attributes": {}, "flags": {}, "instances": {}}
        spec = {"features": empty, "labels": dict(labels)}
        api.create_node_feature(name, {"labels": meant, "spec": spec})
        return
    named = (found.get("metadata") or {}).get("labels") or {}
    before = (found.get("spec") or {}).get("labels") or {}
    changed: dict[str, str | None] = {k: v for k, v in labels.items() if before.get(k) != v}
    changed |= dict.fromkeys(before.keys() - labels.keys())
    values: dict[str, Any] = {}
    if changed:
        values["spec"] = {"labels": changed}
    if named.get(NODE_NAME_LABEL) != node:
        values["metadata"] = {"labels": meant}
    if values:
        api.patch_node_feature(name, values)


class ApiOutput:
    """Applies the newest labels in a thread, and tries again where that fails."""

    def __init__(
        self, apply: Callable[[Mapping[str, str]], None], beat: Beat | None = None
    ) -> None:
        """Starts the thread.

        Args:
            apply: one of the functions above, with all but the labels.
            beat: of the thread.
        """
        self._beat = beat or Beat()
        self._apply = apply
        self._news = runtime.condition()
        self._wanted: Mapping[str, str] | None = None
        self._ending = False
        self._said = ""
        self._thread = runtime.thread(target=self._run, name="node-labels")
        self._thread.start()

    def write(self, labels: Mapping[str, str]) -> None:
        """Has the labels applied soon."""
        with self._news:
            self._wanted = labels
            self._news.notify()

    def end(self, keep: bool) -> None:
        """Ends the thread; the labels stay, else each update of the agent would take them away."""
        self._end_with(None)

    def remove(self) -> None:
        """Has the labels taken away, with one try, and ends the thread."""
        self._end_with({})

    def _end_with(self, labels: Mapping[str, str] | None) -> None:
        with self._news:
            self._wanted, self._ending = labels, True
            self._news.notify()

    def _run(self) -> None:
        while True:
            self._beat.rest()
            with self._news:
                self._news.wait_for(lambda: self._wanted is not None or self._ending)
                labels, self._wanted = self._wanted, None
            if labels is None:
                return
            self._beat()
            if self._has_applied(labels):
                continue
            self._beat.rest()
            with self._news:
                if self._wanted is None and not self._ending:
                    self._wanted = labels
                self._news.wait_for(lambda: self._ending, RETRY_S)

    def _has_applied(self, labels: Mapping[str, str]) -> bool:
        try:
            self._apply(labels)
        except VgpuError as error:
            if error.message != self._said:
                reason = error.message[:_MOST_ERROR]
                event(logging.WARNING, "labels of the node cannot be written", reason=reason)
            self._said = error.message
            return False
        except Exception as error:  # an answer of an unforeseen form must not end the thread
            if repr(error) != self._said:
                LOGGER.exception("labels of the node cannot be written")
            self._said = repr(error)
            return False
        self._said = ""
        return True
