"""The stand-in's device manager: registered plugins, pods, and what their containers were given.

One lock guards the tables; no RPC is made under it, so a plugin may call podresources from inside
a call of ours. Admissions are serial (their own lock), as in the kubelet. Pods that have ended
keep their units until the next admission or podresources List, as in the kubelet.

Its checkpoint is written when a container has all its units and whenever a plugin sends its list,
at no other time; so a pod that has ended stays in it for a while, and a container whose admission
failed may be there with a part. `open` takes all records from it: what a restarted kubelet knows.
"""

import copy
import random
import uuid
from pathlib import Path

import grpc

from deviceplugin import runtime

from . import checkpoint_file
from .merge import RunOptions, merge_answers
from .plugin_client import DeviceState, Plugin, reason
from .pod_admission import AdmissionFailed, PodAdmission, described
from .pods import ContainerManifest, PodManifest
from .records import AdmittedContainer, AdmittedPod
from .unit_table import UnitTable


class DeviceManager:
    """Admits pods against plugins; for what it promises see `StandInKubelet`."""

    def __init__(self, path: Path, order: random.Random, forgets_in_flight: bool) -> None:
        """Makes one that is closed.

        Args:
            path: of its checkpoint.
            order: source of every random choice.
        """
        self.path = path
        self.changed = runtime.condition()  # also the lock of the tables
        self._order, self._uids = order, copy.copy(order)
        self._admission = runtime.lock()
        self._writing = runtime.lock()
        self._table = UnitTable(forgets_in_flight)
        self._plugins: dict[str, Plugin] = {}
        self._known: set[str] = set()  # resources registered before it was opened
        self._pods: dict[str, AdmittedPod] = {}
        self._open = False
        self.is_listening = True

    def open(self) -> None:
        """Takes what every container has from the checkpoint; what it does not name is forgotten.

        A checkpoint that cannot be read names nothing.
        """
        try:
            entries, known = checkpoint_file.read(self.path)
        except ValueError:
            entries, known = [], set()
        with self.changed:
            self._known = known
            for pod in self._pods.values():
                for container in pod.containers:
                    container.forget()
            for entry in entries:
                container = self._recorded(entry.pod_uid, entry.container)
                container.devices[entry.resource] = entry.units
                container.answers[entry.resource] = entry.answer
                container.numa.update(entry.numa)
            self._table.abandon()
            self._table.count(self._pods.values())
        self._open = True

    def close(self) -> None:
        """Ends every connection to a plugin; nothing is written any more."""
        with self._writing:
            self._open = False
        with self.changed:
            plugins, self._plugins = list(self._plugins.values()), {}
        for plugin in plugins:
            plugin.close()

    def connect(self, resource: str, socket: Path) -> None:
        """Takes a plugin in; of two with one name the newest wins.

        Raises:
            grpc.RpcError: nobody answers at its socket.
            ValueError: the kubelet is stopping.
        """
        self.take(Plugin(resource, socket, self.listed, self._notify))

    def take(self, plugin: Plugin) -> None:
        """Takes a plugin in that has been dialled.

        Raises:
            ValueError: the kubelet is stopping.
        """
        with self.changed:
            if not self._open:
                plugin.close()
                raise ValueError("the kubelet is stopping")
            replaced = self._plugins.get(plugin.resource)
            self._plugins[plugin.resource] = plugin
        if self.is_listening:
            plugin.start()
        if replaced is not None:
            replaced.close()

    def end_stream(self, resource: str) -> None:
        """Ends the stream of a plugin, which has to register again."""
        self.plugins()[resource].close()

    def plugins(self) -> dict[str, Plugin]:
        """Returns the registered plugins by resource."""
        with self.changed:
            return dict(self._plugins)

    def inventory(self) -> dict[str, dict[str, DeviceState]]:
        """Returns every unit of every registered resource."""
        return {resource: plugin.devices for resource, plugin in self.plugins().items()}

    def active_pods(self) -> list[AdmittedPod]:
        """Returns the pods that have not ended, after those that have gave up their units."""
        self._look()
        with self.changed:
            return list(self._pods.values())

    def admit(self, manifest: PodManifest) -> AdmittedPod:
        """Admits a new pod."""
        containers = [
            *(AdmittedContainer(each, init=True) for each in manifest.init_containers),
            *(AdmittedContainer(each, init=False) for each in manifest.containers),
        ]
        uid = uuid.UUID(int=self._uids.getrandbits(128), version=4)
        pod = AdmittedPod(manifest, str(uid), containers)
        with self._admission:
            with self.changed:
                self._pods[pod.uid] = pod
            self._admit(pod)
        return pod

    def readmit(self, pod: AdmittedPod) -> None:
        """Admits a pod again."""
        with self._admission:
            self._admit(pod)

    def start_container(self, pod: AdmittedPod, container: AdmittedContainer) -> RunOptions:
        """Asks the plugins, if they want to be, and puts their answers together."""
        resources = [name for name, count in container.manifest.limits.items() if count > 0]
        self._order.shuffle(resources)
        plugins = self.plugins()
        container.unasked = not plugins.keys() >= set(resources)
        for resource in resources:
            plugin = plugins.get(resource)
            try:
                if plugin is None and resource not in self._known:
                    raise ValueError("its plugin is not registered")
                if plugin is not None and plugin.options.pre_start_required:
                    if resource not in container.devices:
                        raise ValueError("no devices found allocated in local cache")
                    plugin.pre_start(container.devices[resource])
            except (grpc.RpcError, ValueError) as error:
                raise AdmissionFailed(
                    f"{described(pod, container)}: PreStartContainer of {resource} failed: "
                    f"{reason(error)}"
                ) from error
        answers = list(container.answers.items())
        self._order.shuffle(answers)
        container.running = True
        return merge_answers(answers)

    def finish(self, pod: AdmittedPod) -> None:
        """Marks a pod as ended."""
        with self.changed:
            pod.active = False

    def lose_containers(self) -> None:
        """Marks every container as not running."""
        with self.changed:
            for pod in self._pods.values():
                for container in pod.containers:
                    container.running = False

    def _admit(self, pod: AdmittedPod) -> None:
        admission = PodAdmission(
            self.plugins,
            self._known.__contains__,
            self._look,
            self._table,
            self._order,
        )
        try:
            for container in pod.containers:
                if admission.admit(pod, container):
                    self._write()
        except BaseException:
            with self.changed:
                pod.active = False
                self._table.abandon()
                self._table.count(self._pods.values())
            raise

    def _look(self) -> None:
        """Frees what pods that have ended had; counts all units again only if they had any."""
        with self.changed:
            ended = [pod for pod in self._pods.values() if not pod.active]
            for pod in ended:
                del self._pods[pod.uid]
            if any(container.devices for pod in ended for container in pod.containers):
                self._table.count(self._pods.values())

    def listed(self) -> None:
        """Notes that a plugin has sent its list."""
        self._notify()
        self._write()

    def _notify(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def _write(self) -> None:
        with self._writing:
            if not self._open:
                return
            with self.changed:
                pods, plugins = list(self._pods.values()), dict(self._plugins)
            checkpoint_file.write(self.path, pods, plugins)

    def _recorded(self, pod_uid: str, name: str) -> AdmittedContainer:
        """Returns a container by name; one of a pod that nobody knows has ended."""
        stranger = AdmittedPod(PodManifest(name="unknown", containers=()), pod_uid, active=False)
        pod = self._pods.setdefault(pod_uid, stranger)
        try:
            return pod.container(name)
        except KeyError:
            pod.containers.append(AdmittedContainer(ContainerManifest(name), init=False))
            return pod.containers[-1]
