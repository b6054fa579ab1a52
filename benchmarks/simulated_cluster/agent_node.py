"""A simulated node: the real core of the agent, over a kubelet that calls it directly.

What the kubelet would do follows from the API server's pods: one that is bound here is admitted and
started in its turn, and what became of it is told (a refusal is ``UnexpectedAdmissionError``, as in
the kubelet). The core publishes its inventory and follows the pods of the node as the agent does,
through the API server. The kubelet follows them by a watch of its own, so either may be the first
to know of a pod.
"""

import contextlib
import queue
import random
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deviceplugin.config.loading import parse_config
from deviceplugin.core.offers import ResourceOffer, device_offer, fraction_offer
from deviceplugin.core.parts import Sources
from deviceplugin.core.service import SliceService
from deviceplugin.kube.api_client import ApiServer
from deviceplugin.kube.inventory_lease import InventoryFeed, InventoryLease
from deviceplugin.kube.lease_objects import NodeLease
from deviceplugin.kube.list_watch import EventType, Follower
from deviceplugin.kube.node_pods import NodePods
from deviceplugin.model.chosen_gpus import CHOSEN_GPUS_KEY, chosen_gpus
from deviceplugin.model.units import Half, fraction_resources, gpu_of
from deviceplugin.policy.devices.layout import lay_out
from deviceplugin.store.checkpoint import Checkpoint
from deviceplugin.store.node_state import NodeState
from deviceplugin.store.slice_files import SliceStore
from deviceplugin.testing import AdmissionFailed, AdmittedPod
from deviceplugin.testing.pods import parse_pod

from .direct_kubelet import DirectKubelet
from .kinds import POD
from .machines import DOMAIN, Machine
from .object_store import ObjectStore
from .pod_calls import set_phase
from .refusals import ApiFailure

_CHOSEN = f"{DOMAIN}/{CHOSEN_GPUS_KEY}"
_MOST_STRAYS = 5
REFUSED = "UnexpectedAdmissionError"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A pod that was bound to a node whose agent then refused it.

    Attributes:
        asked: what its containers asked for, and its annotations.
        holdings: of the node's GPUs when it did.
        strays: the last pods before it that did not get the GPUs that were chosen for them, or that
            the agent did not know of.
    """

    node: str
    pod: str
    sentence: str
    asked: str
    holdings: str
    strays: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"{self.pod} on {self.node}: {self.sentence}; asked {self.asked}; the node holds "
            f"{self.holdings}; strays: {self.strays}"
        )


class SimulatedNode:
    """One node; `start` and `stop` it, and call `look` a few times a second.

    Attributes:
        refusals: of pods that were bound here.
        admitted: how many pods were.
        unknown: how many pods the agent did not know of after it was asked for them.
        elsewhere: how many pods did not get the GPUs that were chosen for them.
    """

    def __init__(
        self,
        name: str,
        machine: Machine,
        folder: Path,
        store: ObjectStore,
        api: ApiServer | None,
        seed: int,
    ) -> None:
        """Makes the agent's core; nothing runs yet.

        Args:
            store: of the API server, as the kubelet uses it.
            api: as the agent uses it; None: it neither publishes nor follows pods.
            seed: of the kubelet's random choices.
        """
        self.name, self.machine = name, machine
        self.refusals: list[Refusal] = []
        self.admitted = self.unknown = self.elsewhere = 0
        self._store = store
        self._strays: deque[str] = deque(maxlen=_MOST_STRAYS)
        self._work: queue.SimpleQueue[tuple[str, Mapping[str, Any]] | None] = queue.SimpleQueue()
        self._known: set[str] = set()
        self._thread = threading.Thread(target=self._run, name=f"kubelet {name}", daemon=True)
        config, gpus = parse_config(machine.config), machine.make_gpus(name)
        (folder / "state").mkdir(parents=True)
        files = SliceStore(folder / "run", folder / "state", config.forms, gpus)
        files.prepare()
        state = NodeState(Checkpoint(folder / "state"), lay_out(config, gpus), gpus)
        self._pods = NodePods(api, name, DOMAIN) if api is not None else None
        listing = Sources(lambda: self.kubelet.listing())
        sources = (
            listing if self._pods is None else Sources(listing.list_podresources, pods=self._pods)
        )
        self._fractions = fraction_resources(DOMAIN)
        self.service = SliceService(state, files, config.rules, sources)
        self.service.devices.whole = config.whole
        offers = [
            fraction_offer(self.service, family, half)
            for family in state.layout.families()
            for half in Half
        ]
        offers += (device_offer(self.service, each.name) for each in state.layout.resources)
        self.kubelet = DirectKubelet(offers, DOMAIN, random.Random(seed))
        self.allocatable = {each.name: self._count(each) for each in offers}
        self._watch = Follower(
            api, POD.path(), {"fieldSelector": f"spec.nodeName={name}"}, dict[str, Any],
            self._listed, self._told, f"kubelet-{name}",
        ) if api is not None else None  # fmt: skip
        self._lease = InventoryLease(NodeLease(api, name)) if api is not None else None
        self._feed = InventoryFeed(state, self._lease.put) if self._lease is not None else None

    @staticmethod
    def _count(offer: ResourceOffer) -> int:
        return sum(each.healthy for each in offer.units()[1])

    def start(self) -> None:
        """Serves from now on."""
        self._thread.start()
        if self._pods is not None and self._lease is not None and self._watch is not None:
            self._pods.start()
            self._watch.start()
            self._lease.start()
            self.look()

    def stop(self) -> None:
        """Ends it; what is in the kubelet's queue is still done."""
        self._work.put(None)
        if self._thread.is_alive():
            self._thread.join()
        if self._pods is not None and self._lease is not None and self._watch is not None:
            self._pods.stop()
            self._watch.stop()
            self._lease.stop()

    def look(self) -> None:
        """Does what the agent's loop does: sees what has ended, and publishes what is new."""
        self.service.reconcile()
        if self._feed is not None:
            self._feed.look()

    def tell(self, pod: Mapping[str, Any]) -> None:
        """Takes the state of a pod that is bound here; must not block."""
        self._work.put(("pod", pod))

    def _listed(self, pods: list[dict[str, Any]]) -> None:
        there = {pod["metadata"]["uid"] for pod in pods}
        for uid in self._known - there:
            self._work.put(("gone", {"metadata": {"uid": uid}}))
        for pod in pods:
            self.tell(pod)

    def _told(self, kind: EventType, pod: dict[str, Any]) -> None:
        self._work.put(("gone" if kind is EventType.DELETED else "pod", pod))

    def end(self, pod: Mapping[str, Any]) -> None:
        """Lets the containers of a pod end."""
        self._work.put(("end", pod))

    def is_idle(self) -> bool:
        """Returns whether the kubelet has nothing to do."""
        return self._work.empty()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            what, pod = work
            if what == "end":
                self._end(pod)
            elif what == "gone":
                self._known.discard(pod["metadata"]["uid"])
                self.kubelet.finish(pod["metadata"]["uid"])
            elif pod["metadata"].get("deletionTimestamp"):
                self._remove(pod)
            elif pod["metadata"]["uid"] not in self._known:
                self._admit(pod)

    def _admit(self, pod: Mapping[str, Any]) -> None:
        metadata = pod["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        self._known.add(metadata["uid"])
        if pod["status"]["phase"] in ("Succeeded", "Failed"):
            return
        manifest = parse_pod({"apiVersion": "v1", "kind": "Pod", **pod})
        try:
            admitted = self.kubelet.admit(metadata["uid"], manifest)
            self._compare(pod, admitted)
            self.kubelet.start(admitted)
        except AdmissionFailed as error:
            self.kubelet.finish(metadata["uid"])
            who, asked, held = f"{namespace}/{name}", _asked(pod), self._holdings()
            refusal = Refusal(self.name, who, str(error), asked, held, tuple(self._strays))
            self.refusals.append(refusal)
            set_phase(self._store, namespace, name, "Failed", REFUSED)
        else:
            self.admitted += 1
            set_phase(self._store, namespace, name, "Running")

    def _compare(self, pod: Mapping[str, Any], admitted: AdmittedPod) -> None:
        """Counts where the agent did not know of a pod with a fraction, or did not honour what was
        chosen for it.
        """
        metadata = pod["metadata"]
        chosen = chosen_gpus((metadata.get("annotations") or {}).get(_CHOSEN, ""))
        if chosen is None or chosen.node != self.name or not chosen.containers:
            return
        seen = self._pods.seen() if self._pods is not None else None
        if seen is not None and (metadata["namespace"], metadata["name"]) not in seen.names:
            self.unknown += 1
            state = "alive" if seen.is_current else "broken"
            self._strays.append(f"{metadata['name']} unknown, watch {state}")
        for name, uuids in chosen.containers.items():
            has = {
                gpu_of(unit)
                for resource, units in admitted.container(name).devices.items()
                if resource in self._fractions
                for unit in units
            }
            if has != set(uuids):
                self.elsewhere += 1
                which = f"{metadata['name']}, container {name}"
                self._strays.append(f"{which}: {uuids} chosen, {has} had; {_asked(pod)}")
                return

    def _end(self, pod: Mapping[str, Any]) -> None:
        metadata = pod["metadata"]
        self.kubelet.finish(metadata["uid"])
        set_phase(self._store, metadata["namespace"], metadata["name"], "Succeeded")

    def _remove(self, pod: Mapping[str, Any]) -> None:
        metadata = pod["metadata"]
        self._known.discard(metadata["uid"])
        self.kubelet.finish(metadata["uid"])
        with contextlib.suppress(ApiFailure):  # somebody else did
            self._store.delete(POD, metadata["namespace"], metadata["name"], metadata["uid"])

    def _holdings(self) -> str:
        rows = []
        for allocation, _ in self.service.allocations():
            rows.append(
                f"{allocation.owner}: {len(allocation.core)} core, {len(allocation.memory)} memory"
                f" on {' '.join(allocation.uuids)}"
            )
        return "; ".join(rows)


def _asked(pod: Mapping[str, Any]) -> str:
    spec = pod["spec"]
    containers = (*(spec.get("initContainers") or ()), *spec["containers"])
    asked = [(each["name"], each["resources"]["limits"]) for each in containers]
    return f"{asked} {pod['metadata'].get('annotations')}"
