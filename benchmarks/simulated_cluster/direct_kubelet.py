"""A kubelet's device manager in front of an agent's core, with neither gRPC nor sockets between.

Admissions, the choice of units and their return are those of `deviceplugin.testing`; only the calls
of a plugin are made directly. Admissions are serial, as in the kubelet; the tables have one lock.
"""

import random
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from deviceplugin.core.offers import ResourceOffer
from deviceplugin.model.allocations import Owner
from deviceplugin.model.units import fraction_resources
from deviceplugin.policy.pairing.podresources_listing import Listed
from deviceplugin.testing import AdmissionFailed, AdmittedPod, PodManifest
from deviceplugin.testing.plugin_client import DeviceState, Plugin
from deviceplugin.testing.pod_admission import PodAdmission, described
from deviceplugin.testing.records import AdmittedContainer
from deviceplugin.testing.unit_table import UnitTable
from libvgpu.errors import VgpuError


class _Options:
    pre_start_required = True
    get_preferred_allocation_available = True


class DirectPlugin:
    """What a kubelet sees of one resource: the calls of `Plugin`, without a connection."""

    options = _Options()

    def __init__(self, offer: ResourceOffer) -> None:
        self.resource = offer.name
        self._offer = offer
        self._revision = -1
        self._devices: dict[str, DeviceState] = {}

    @property
    def devices(self) -> Mapping[str, DeviceState]:
        """All units, as the agent lists them now."""
        if self._revision != self._offer.state.revision:
            self._revision, units = self._offer.units()
            self._devices = {each.name: DeviceState(each.name, each.healthy, ()) for each in units}
        return self._devices

    def prefer(self, available: Sequence[str], must: Sequence[str], count: int) -> list[str]:
        """Asks which units to take.

        Raises:
            ValueError: the agent refuses.
        """
        try:
            return self._offer.prefer(available, must, count)
        except VgpuError as error:
            raise ValueError(error.message) from error

    def allocate(self, device_ids: Sequence[str]) -> object:
        """Has units given to a container.

        Raises:
            ValueError: the agent refuses.
        """
        try:
            return self._offer.allocate(device_ids)
        except VgpuError as error:
            raise ValueError(error.message) from error

    def pre_start(self, device_ids: Sequence[str]) -> None:
        """Tells that a container starts.

        Raises:
            ValueError: the agent refuses.
        """
        try:
            self._offer.pre_start(device_ids)
        except VgpuError as error:
            raise ValueError(error.message) from error


class DirectKubelet:
    """The device manager of one node."""

    def __init__(self, offers: Iterable[ResourceOffer], domain: str, order: random.Random) -> None:
        """Has no pods.

        Args:
            domain: of the agent's resources.
            order: source of every random choice.
        """
        # All that an admission uses of a plugin is there.
        self._plugins = {each.name: cast(Plugin, DirectPlugin(each)) for each in offers}
        self._fractions, self._prefix = fraction_resources(domain), f"{domain}/"
        self._order = order
        self._table = UnitTable()
        self._lock, self._admission = threading.Lock(), threading.Lock()
        self._pods: dict[str, AdmittedPod] = {}

    def admit(self, uid: str, manifest: PodManifest) -> AdmittedPod:
        """Admits a pod.

        Raises:
            AdmissionFailed: with the agent's sentence.
        """
        pod = AdmittedPod(
            manifest,
            uid,
            [
                *(AdmittedContainer(each, init=True) for each in manifest.init_containers),
                *(AdmittedContainer(each, init=False) for each in manifest.containers),
            ],
        )
        admission = PodAdmission(
            lambda: self._plugins,
            lambda _: False,
            self._look,
            self._table,
            self._order,
        )
        with self._admission:
            with self._lock:
                self._pods[uid] = pod
            try:
                for container in pod.containers:
                    admission.admit(pod, container)
            except BaseException:
                with self._lock:
                    pod.active = False
                    self._table.abandon()
                    self._table.count(self._pods.values())
                raise
        return pod

    def start(self, pod: AdmittedPod) -> None:
        """Starts all containers of a pod, one after the other.

        Raises:
            AdmissionFailed: the agent does not let one start.
        """
        for container in pod.containers:
            for resource, units in container.devices.items():
                try:
                    self._plugins[resource].pre_start(units)
                except ValueError as error:
                    raise AdmissionFailed(
                        f"{described(pod, container)}: PreStartContainer of {resource} failed: "
                        f"{error}"
                    ) from error
            container.running = True

    def finish(self, uid: str) -> None:
        """Notes that a pod has ended; its units return at the next admission or listing."""
        with self._lock:
            if uid in self._pods:
                self._pods[uid].active = False

    def pods(self) -> list[AdmittedPod]:
        """Returns the pods that have not ended."""
        with self._lock:
            return [pod for pod in self._pods.values() if pod.active]

    def listing(self) -> list[Listed]:
        """Returns what podresources says."""
        self._look()
        with self._lock:
            return [
                self._listed(pod, container)
                for pod in self._pods.values()
                for container in pod.containers
                if not container.ends_first
            ]

    def _listed(self, pod: AdmittedPod, container: AdmittedContainer) -> Listed:
        owner = Owner(pod.manifest.namespace, pod.manifest.name, container.manifest.name)
        units: set[str] = set()
        devices: set[tuple[str, str]] = set()
        for resource, given in list(container.devices.items()):
            if resource in self._fractions:
                units.update(given)
            elif resource.startswith(self._prefix):
                devices.update((resource, each) for each in given)
        return Listed(owner, frozenset(units), tuple(sorted(devices)))

    def _look(self) -> None:
        with self._lock:
            ended = [uid for uid, pod in self._pods.items() if not pod.active]
            if ended:
                for uid in ended:
                    del self._pods[uid]
                self._table.count(self._pods.values())
