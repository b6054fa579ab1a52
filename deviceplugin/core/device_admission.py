"""What the kubelet asks of devices that are given whole or as replicas.

There is nothing to pair and nothing to save: the answer follows from the ids alone and tells the
container's runtime which GPUs it may see (`device_choice`, `container_answer`). Who holds what is
noted, so that a GPU is not shared in another way under a container (`model.held_devices`). Replicas
under MPS are slices, which `Admission` gives.

The kubelet's calls come in threads of gRPC; they meet in `NodeState`'s lock.
"""

import hashlib
import logging
import os
from collections.abc import Callable, Sequence

from deviceplugin import runtime
from deviceplugin.log import event
from deviceplugin.model.device_forms import DeviceForms
from deviceplugin.model.gpus import Gpu
from deviceplugin.model.held_devices import with_given
from deviceplugin.model.notices import EventReason, container_notice
from deviceplugin.model.whole_devices import GIVEN_WHOLE
from deviceplugin.policy.devices.device_choice import Closest, given_devices, prefer_devices
from deviceplugin.policy.devices.device_resources import DeviceResource, device_of
from deviceplugin.policy.devices.layout import all_devices
from deviceplugin.policy.pairing.podresources_listing import device_conflict
from deviceplugin.recovery.confirmation import unconfirmed_devices
from deviceplugin.store.container_answer import Answer, device_parts
from deviceplugin.store.mig_nodes import minors_for
from deviceplugin.store.node_state import NodeState
from libvgpu.errors import AllocationRefused, VgpuError

from .admission import Admission
from .container_start import NO_ANSWER, ContainerStart
from .podresources_sync import PodResourcesSync


class DeviceAdmission:
    """Answers for all resources of whole devices.

    Attributes:
        whole: what the config says of them; replaced when it changes.
    """

    def __init__(
        self,
        state: NodeState,
        sync: PodResourcesSync,
        slices: Admission,
        starts: ContainerStart,
        forms: DeviceForms,
        closest: Closest,
        clock: Callable[[], float] = runtime.monotonic,
    ) -> None:
        """Has answered nothing yet.

        Args:
            slices: gives replicas under MPS, which are slices.
            starts: lets their containers start.
            forms: how answers name the GPUs.
            closest: which of several GPUs lie close together.
            clock: seconds from any start, never set back.
        """
        self.whole = GIVEN_WHOLE
        self._state, self._sync, self._forms = state, sync, forms
        self._slices, self._starts = slices, starts
        self._closest, self._clock = closest, clock

    def prefer(
        self, name: str, available: Sequence[str], must_include: Sequence[str], count: int
    ) -> list[str]:
        """Answers GetPreferredAllocation (see `prefer_devices`)."""
        with self._state.lock:
            resource = self._resource(name)
            chosen = prefer_devices(
                resource, available, must_include, count, self.whole.spread, self._closest
            )
        self._sync.expect_allocate()
        return chosen

    def allocate(self, name: str, device_ids: Sequence[str]) -> Answer:
        """Answers Allocate for one container (see `given_devices`)."""
        with self._state.lock:
            resource = self._resource(name)
            is_slice = any(self._is_divided(each) for each in device_ids)
        if is_slice:
            answer = self._slices.allocate_replica(resource, device_ids)
            with self._state.lock:
                self._hold(name, device_ids)
            return answer
        with self._sync.held_off(device_ids), self._state.lock:
            devices = given_devices(self._resource(name), device_ids)
            gpus = [each.gpu for each in devices]
            answer = device_parts(
                gpus,
                self._forms,
                _answer_id(device_ids),
                os.path.exists,
                minors_for(gpus, self._forms),
            )
            self._hold(name, device_ids)
        event(
            logging.INFO,
            "allocated",
            resource=name,
            units=len(device_ids),
            gpu=" ".join(each.gpu.uuid for each in devices),
        )
        return answer

    def pre_start(self, name: str, device_ids: Sequence[str]) -> None:
        """Answers PreStartContainer.

        Raises:
            AllocationRefused: a device is not there any more, somebody else has it, too, or the
                container would start without it.
        """
        with self._state.lock:
            is_slice = any(self._state.book.holder(each) is not None for each in device_ids)
        if is_slice:
            self._starts.pre_start_replica(name, device_ids)
            return
        listing = self._sync.look_patiently(device_ids)
        with self._state.lock:
            gpus = all_devices(self._state.gpus)
        problem = _gone(device_ids, gpus)
        if problem is None and listing is not None:
            problem = device_conflict(name, device_ids, listing)
        elif problem is None:
            doubt = unconfirmed_devices(self._sync.record(), name, frozenset(device_ids))
            problem = doubt and NO_ANSWER.format(doubt)
        problem = problem or self._not_ready(device_ids)
        if problem is None:
            return
        listing = listing or ()
        owner = next((c.owner for c in listing if (name, device_ids[0]) in c.devices), None)
        event(
            logging.WARNING,
            "container start refused",
            notice=container_notice(EventReason.CONTAINER_START_REFUSED, problem, owner),
            owner=owner or "unknown",
            reason=problem,
        )
        raise AllocationRefused(problem)

    def _is_divided(self, device_id: str) -> bool:
        """Returns whether a device is a part of a GPU that is divided under MPS."""
        shared = self._state.layout.find(device_of(device_id))
        return shared is not None and shared.replicas > 0

    def _not_ready(self, device_ids: Sequence[str]) -> str | None:
        """Returns why devices cannot be used yet: the container's runtime would not bring them in,
        or MPS still has them, from before their sharing changed.
        """
        try:
            self._starts.wait_until_ready(sorted({device_of(each) for each in device_ids}))
        except VgpuError as error:
            return error.message
        return None

    def _hold(self, name: str, device_ids: Sequence[str]) -> None:
        self._state.hold(with_given(self._state.held, name, device_ids, self._clock()))

    def _resource(self, name: str) -> DeviceResource:
        found = self._state.layout.resource(name)
        if found is None:
            raise AllocationRefused(f"{name} is not offered any more")
        return found


def _answer_id(device_ids: Sequence[str]) -> str:
    """Returns by what the annotations of two answers differ: one device is given once at a time."""
    return hashlib.sha256(" ".join(sorted(device_ids)).encode()).hexdigest()[:12]


def _gone(device_ids: Sequence[str], gpus: Sequence[Gpu]) -> str | None:
    here = {gpu.uuid for gpu in gpus}
    gone = sorted({device_of(each) for each in device_ids} - here)
    if not gone:
        return None
    return f"{gone[0]} is not on this node any more; delete the pod, so that it is admitted again"
