"""Nodes for thousands at once: what an agent publishes, without an agent.

A pod that is bound to one gets the GPUs that its annotation chose, as an agent gives them where
there is room, and the node's Lease says so a moment later. That its agent would have done the same
is for tests with real cores to show.
"""

import random
import threading
from collections.abc import Mapping
from typing import Any

from deviceplugin.model.chosen_gpus import CHOSEN_GPUS_KEY, chosen_gpus
from deviceplugin.pages.published import (
    COMPONENT,
    COMPONENT_LABEL,
    FORM,
    INVENTORY_KEY,
    PublishedGpu,
    PublishedNode,
    PublishedSharing,
    PublishedSlice,
    encode,
)

from .kinds import LEASE, POD
from .machines import CORE, DOMAIN, GIB, H100, MEMORY
from .object_store import Change, ChangeKind, Content, ObjectStore
from .pod_shapes import Amounts

UNITS = H100.memory_bytes // GIB
_KEY = f"{DOMAIN}/{INVENTORY_KEY}"
_CHOSEN = f"{DOMAIN}/{CHOSEN_GPUS_KEY}"
_TOUCHED = "touched"


class LightNodes:
    """Nodes of one kind: GPUs of 80 GiB, shared in units of 1 GiB.

    Attributes:
        over_committed: GPUs of which more was given than there is, with what was.
    """

    def __init__(
        self,
        store: ObjectStore,
        namespace: str,
        count: int,
        gpus: int,
        seed: int,
        occupied: float = 0.0,
        tell_every_s: float = 0.5,
    ) -> None:
        """Publishes all nodes.

        Args:
            namespace: of the Leases.
            occupied: the part of the GPUs that have slices already, of random sizes.
            tell_every_s: how often Leases are written.
        """
        self.over_committed: dict[str, tuple[int, int]] = {}
        self._store, self._namespace, self._tell_every_s = store, namespace, tell_every_s
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="light nodes", daemon=True)
        self._changed: set[str] = set()
        chance = random.Random(seed)
        self._gpus = {
            f"n{number:04}": tuple(_gpu(f"n{number:04}", index) for index in range(gpus))
            for number in range(count)
        }
        self._slices: dict[str, dict[str, PublishedSlice]] = {name: {} for name in self._gpus}
        for name, node_gpus in self._gpus.items():
            for gpu in node_gpus:
                if chance.random() < occupied:
                    self._occupy(name, gpu.uuid, chance)
            self._store.create(LEASE, self._lease(name))

    @property
    def names(self) -> list[str]:
        """Of all nodes."""
        return list(self._gpus)

    @property
    def allocatable(self) -> Mapping[str, Amounts]:
        """What kubelets would tell."""
        return {
            name: {CORE: 100 * len(gpus), MEMORY: UNITS * len(gpus)}
            for name, gpus in self._gpus.items()
        }

    def start(self) -> None:
        """Takes the pods that are bound from now on."""
        with self._store.lock:
            self._store.subscribe(POD, self._store.version, self._take)
        self._thread.start()

    def stop(self) -> None:
        """Takes no more."""
        self._store.unsubscribe(POD, self._take)
        self._stop.set()
        self._thread.join()

    def given(self) -> dict[str, tuple[int, int]]:
        """Returns core and memory units given of each GPU, by UUID."""
        found: dict[str, tuple[int, int]] = {}
        with self._lock:
            for slices in self._slices.values():
                for each in slices.values():
                    for uuid, (core, memory) in each.units.items():
                        had = found.get(uuid, (0, 0))
                        found[uuid] = had[0] + core, had[1] + memory
        return found

    def touch(self, name: str) -> None:
        """Has a node write that a slice of one unit came, or that it has gone again."""
        uuid = self._gpus[name][0].uuid
        with self._lock:
            slices = self._slices[name]
            if slices.pop(_TOUCHED, None) is None:
                slices[_TOUCHED] = PublishedSlice(
                    f"{name}-{_TOUCHED}", {uuid: (1, 1)}, ("old", f"{name}-{_TOUCHED}"), "c0"
                )
            lease = self._lease(name)
        self._write(lease)

    def _occupy(self, name: str, uuid: str, chance: random.Random) -> None:
        core, memory = 0, 0
        while chance.random() < 0.7:
            more_core, more_memory = chance.randint(5, 50), chance.randint(2, 40)
            if core + more_core > 100 or memory + more_memory > UNITS:
                break
            core, memory = core + more_core, memory + more_memory
            number = len(self._slices[name])
            self._slices[name][f"old-{number}"] = PublishedSlice(
                f"{name}-{number}",
                {uuid: (more_core, more_memory)},
                ("old", f"{name}-{number}"),
                "c0",
            )

    def _take(self, change: Change) -> None:
        pod = change.now.content
        node = pod["spec"].get("nodeName") or ""
        if node not in self._slices:
            return
        uid = pod["metadata"]["uid"]
        is_over = change.kind is ChangeKind.DELETED or pod["status"]["phase"] in (
            "Succeeded",
            "Failed",
        )
        with self._lock:
            slices = self._slices[node]
            mine = [key for key in slices if key.startswith(uid)]
            if is_over:
                for key in mine:
                    del slices[key]
            elif not mine:
                self._give(node, uid, pod)
            else:
                return
            self._changed.add(node)

    def _give(self, node: str, uid: str, pod: Mapping[str, Any]) -> None:
        metadata = pod["metadata"]
        chosen = chosen_gpus((metadata.get("annotations") or {}).get(_CHOSEN, ""))
        for container in pod["spec"]["containers"]:
            limits = container["resources"]["limits"]
            core, memory = int(limits.get(CORE, 0)), int(limits.get(MEMORY, 0))
            uuids = chosen.containers.get(container["name"], ()) if chosen is not None else ()
            if not uuids:
                continue
            share = core // len(uuids)
            each_memory = memory // len(uuids) or max(1, UNITS * share // 100)
            key = f"{uid}/{container['name']}"
            self._slices[node][key] = PublishedSlice(
                key,
                dict.fromkeys(uuids, (share, each_memory)),
                (metadata["namespace"], metadata["name"]),
                container["name"],
            )
            for uuid in uuids:
                self._check(node, uuid)

    def _check(self, node: str, uuid: str) -> None:
        parts = [each.units[uuid] for each in self._slices[node].values() if uuid in each.units]
        core, memory = (sum(amounts) for amounts in zip(*parts, strict=True))
        if core > 100 or memory > UNITS:
            self.over_committed[uuid] = core, memory

    def _tell(self) -> None:
        while not self._stop.wait(self._tell_every_s):
            with self._lock:
                changed, self._changed = self._changed, set()
                leases = [self._lease(name) for name in sorted(changed)]
            for lease in leases:
                self._write(lease)

    def _write(self, lease: Content) -> None:
        def edit(content: Content) -> None:
            content["metadata"]["annotations"] = lease["metadata"]["annotations"]

        self._store.change(LEASE, self._namespace, lease["metadata"]["name"], edit)

    def _lease(self, name: str) -> Content:
        slices = tuple(self._slices[name].values())
        published = PublishedNode(FORM, DOMAIN, self._gpus[name], slices)
        return {
            "metadata": {
                "name": name,
                "namespace": self._namespace,
                "labels": {COMPONENT_LABEL: COMPONENT},
                "annotations": {_KEY: encode(published)},
            },
            "spec": {},
        }


def _gpu(node: str, index: int) -> PublishedGpu:
    sharing = PublishedSharing("vgpu", GIB, UNITS)
    return PublishedGpu(index, f"GPU-{node}-{index}", H100.product, H100.memory_bytes, sharing)
