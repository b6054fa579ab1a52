"""Puts the node agent together and runs it.

One loop, in the main thread, does everything that is not asked for by the kubelet: follows the
config file, keeps the plugins registered, asks podresources, sees to the MPS daemons and to the
arbiters of GPUs shared in time. The kubelet's calls come in the gRPC servers' threads, scrapes,
probes and `vgpuctl` in those of `http.server`; they meet the loop in `NodeState`'s lock only.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Collection, Sequence
from functools import partial

import msgspec

from deviceplugin import runtime
from deviceplugin.core.config_follower import ConfigFollower
from deviceplugin.core.config_life import open_config
from deviceplugin.core.container_files import ContainerFiles
from deviceplugin.core.gpu_arbiters import NodeArbiters
from deviceplugin.core.gpu_follower import GpuFollower
from deviceplugin.core.node_injection import node_injection
from deviceplugin.core.parts import Sources
from deviceplugin.core.service import SliceService
from deviceplugin.core.time_slices import TimeSlices
from deviceplugin.http.agent_state import AgentState, Identity
from deviceplugin.http.control_api import ControlApi
from deviceplugin.http.metrics import AllocateDurations, Metrics, NodeCollector
from deviceplugin.http.pages import moved, pages
from deviceplugin.http.remembered_page import RememberedPage
from deviceplugin.http.server import HttpServer
from deviceplugin.http.slices_page import SlicesPage
from deviceplugin.inventory import topology
from deviceplugin.inventory.counted_xids import counted_xids
from deviceplugin.inventory.gpu_watch import GpuWatch, hanging
from deviceplugin.inventory.health_watch import HealthWatch
from deviceplugin.inventory.nvml import Inventory
from deviceplugin.inventory.nvml_calls import NvmlCalls
from deviceplugin.kube.api_client import ApiServer
from deviceplugin.kube.event_sender import NodeEvents
from deviceplugin.kube.inventory_lease import InventoryFeed, InventoryLease
from deviceplugin.kube.lease_objects import NodeLease
from deviceplugin.kube.node_objects import NodeObjects
from deviceplugin.kube.notices import tapped
from deviceplugin.kube.pod_labels import PodLabels
from deviceplugin.kubelet.answer_codec import mounts_of
from deviceplugin.labels.outputs import output_of
from deviceplugin.labels.publisher import LabelPublisher
from deviceplugin.labels.source import what_is_offered
from deviceplugin.mps.keeper import MpsKeeper
from deviceplugin.pages import AGENT_SOCKET
from deviceplugin.policy.devices.device_choice import Closest
from deviceplugin.policy.devices.known_gpus import devices
from deviceplugin.recovery.foreign_plugins import ForeignPluginWatch
from deviceplugin.recovery.kubelet_checkpoint import KubeletCheckpoint
from deviceplugin.serving.listeners import join_address, tcp_listener, unix_listener
from deviceplugin.store.agent_lock import only_agent
from deviceplugin.store.checkpoint import Checkpoint
from deviceplugin.store.event_file import EventFile, events_page
from deviceplugin.store.node_state import NodeState
from deviceplugin.store.slice_files import SliceStore
from deviceplugin.store.slice_peaks import SlicePeaks
from deviceplugin.watch.nvml_processes import read_gpus, read_times
from deviceplugin.watch.pid_visibility import sees_node_pids
from deviceplugin.watch.process_attribution import ProcessAttribution, RecordedPods
from deviceplugin.watch.time_watch import TimeWatch
from deviceplugin.watch.watcher import MemoryWatch

from .heartbeats import Heartbeats
from .kubelet.followed_pods import FollowedPods
from .kubelet.plugins import Plugins
from .kubelet.podresources import PodResources
from .kubelet.registrar import Registrar
from .kubelet.socket_names import check_directory
from .log import event
from .loop import run_duties
from .settings import AgentSettings

#: The second address, as errors call it.
PAGES = "pages address"
# Multiples of one period, so that an idle agent wakes three times a second and no more.
_CONFIG_EVERY_S = 0.35
#: A container takes longer than this to begin its first work.
_ARBITERS_EVERY_S = 0.7
_KUBELET_EVERY_S = 0.7
_GPUS_EVERY_S = 0.7
_PODS_EVERY_S = 1.05
_COMPACT_EVERY_S = 4.9
_MPS_EVERY_S = 2.1
_SPARE_EVERY_S = 0.7
_FILES_EVERY_S = 2.1
_FOREIGN_EVERY_S = 29.4
_LABELS_EVERY_S = 4.2
_INJECTION_EVERY_S = 4.9
_INVENTORY_EVERY_S = 0.35


def run(settings: AgentSettings, inventory: Inventory, stop: runtime.Event) -> None:
    """Runs the agent until ``stop`` is set.

    Raises:
        VgpuError: bad config and no kept one, no GPUs, no room on disk, or another agent is
            running; nothing is registered then.
        DriverReplacedError: the driver was replaced, so a new process is needed.
    """
    check_directory(settings.kubelet_dir / "device-plugins")
    agent = _Agent(settings, inventory, stop)
    agent.store.prepare()
    with only_agent(settings.state_dir):
        with contextlib.ExitStack() as ends:
            agent.start(ends)
            agent.turn()
        event(logging.INFO, "agent stopped")


class _Agent:
    """The parts of the agent, made in the order in which they need each other."""

    def __init__(self, settings: AgentSettings, inventory: Inventory, stop: runtime.Event) -> None:
        """Reads the config and lists the GPUs; another agent may still be running.

        Raises:
            VgpuError: see `run`.
        """
        self.settings, self.stop = settings, stop
        self.api = ApiServer.from_environment(os.environ)
        self.life = open_config(
            settings.config,
            settings.selection,
            settings.said,
            self.api,
            settings.node_name,
            settings.state_dir,
            inventory,
            settings.check_node,
        )
        config, gpus = self.life.first.config, self.life.first.known.here
        self.domain = config.resource_domain
        self.beats = Heartbeats()
        self.listing = GpuWatch(
            inventory, self.life.listed, turned=self.beats.of("the list of GPUs")
        )
        self.injection = node_injection(
            config.forms, settings.host_root, settings.node_name, self.api, gpus
        )
        self.store = SliceStore(settings.run_dir, settings.state_dir, self.injection.forms, gpus)

    def start(self, ends: contextlib.ExitStack) -> None:
        """Makes the parts and starts their threads.

        Args:
            ends: what is started last ends first.
        """
        self._reach_the_cluster(ends)
        self._keep_allocations(ends)
        self._watch_the_node(ends)
        self._tell_the_cluster(ends)
        self._answer_the_kubelet()
        address = self._answer_everybody_else(ends)
        ends.callback(self.registrar.stop)
        ends.callback(self.listing.stop)
        self.listing.start()
        if self.settings.watch_health:
            if self.xids.is_watched:
                ends.callback(self.health.stop)
                self.health.start()
            ends.callback(self.memory.stop)
            self.memory.start()
        ends.callback(self.arbiters.stop)
        event(
            logging.INFO,
            "agent started",
            node=self.settings.node_name,
            gpus=len(self.life.first.layout.gpus),
            resources=",".join(p.resource for p in self.plugins.wanted()) or "none",
            metrics=address,
        )

    def _reach_the_cluster(self, ends: contextlib.ExitStack) -> None:
        """What API server and kubelet tell, and the Events that the former is told."""
        settings = self.settings
        ends.enter_context(tapped(EventFile(settings.state_dir).add))
        events = NodeEvents(self.api, settings.node_name)
        self.beats.look_at("Kubernetes Events", events.beat)
        ends.callback(events.stop)
        self.labels = PodLabels(self.api, settings.state_dir)
        self.beats.look_at("labels of pods", self.labels.beat)
        resources = PodResources(settings.kubelet_dir, self.domain)
        ends.callback(resources.close)
        self.record = KubeletCheckpoint(settings.kubelet_dir, self.domain, mounts_of)
        self.pods = FollowedPods(self.api, settings.kubelet_dir, settings.node_name, self.domain)
        self.beats.look_at("the pods of this node", self.pods.beat)
        ends.callback(self.pods.stop)
        self.pods.start()
        self.sources = Sources(
            resources.list,
            self.record.read,
            self.labels.of,
            pods=self.pods.source,
            node=settings.node_name,
        )

    def _keep_allocations(self, ends: contextlib.ExitStack) -> None:
        """What is kept of the node's allocations, and who changes it."""
        settings, first = self.settings, self.life.first
        self.checkpoint = Checkpoint(settings.state_dir)
        self.state = NodeState(self.checkpoint, first.layout, first.known.here)
        self.mps = MpsKeeper(
            settings.config.absolute(),
            settings.run_dir,
            settings.spawn_mps,
            self.state,
            is_running=self.store.running,
            state_dir=settings.state_dir,
            root=lambda: self.config_watch.config.mps_root,
        )
        self.service = SliceService(
            self.state,
            self.store,
            first.config.rules,
            self.sources,
            self._wait_for_gpus,
            _closest_on(self.state),
        )
        self.service.devices.whole = first.config.whole
        ends.callback(self.store.held.close)
        self.files = ContainerFiles(self.service, self.store)
        self.files.look()  # before any container gets a chance to
        ends.callback(self.labels.stop)
        self.labels.start(self.service.follow_labels)

    def _wait_for_gpus(self, uuids: Sequence[str], under_mps: bool, within_s: float) -> None:
        self.injection.check(uuids)
        self.mps.wait(uuids, under_mps, within_s)

    def _watch_the_node(self, ends: contextlib.ExitStack) -> None:
        """What follows GPUs, processes and the config."""
        settings = self.settings
        memory_calls: NvmlCalls[str] = NvmlCalls()
        self.arbiters = NodeArbiters(settings.run_dir)
        self.memory = MemoryWatch(
            self.service,
            ProcessAttribution(
                settings.run_dir / "allocations", RecordedPods(self.record.read).read
            ),
            self.life.first.config.watch,
            SlicePeaks(settings.state_dir),
            partial(read_gpus, calls=memory_calls),
            turned=self.beats.of("processes on GPUs"),
            mps_daemons=lambda: {uuid: each.daemon for uuid, each in self.mps.states().items()},
        )
        read = partial(read_times, calls=memory_calls)
        self.memory.times = TimeWatch(self.arbiters, read, runtime.monotonic)
        self.xids, problems = counted_xids(os.environ)
        for problem in problems:
            event(logging.WARNING, problem)

        def hanging_elsewhere() -> dict[str, str]:
            by_memory = {uuid: str(answer) for uuid, answer in memory_calls.hanging().items()}
            return hanging(self.listing.latest, self.state.gpus) | by_memory

        self.health = HealthWatch(
            self.service.gpu_uuids(),
            self.service.set_unhealthy,
            counts=self.xids.counts,
            hanging=hanging_elsewhere,
            turned=self.beats.of("the health of GPUs"),
        )
        self.config_watch = self.life.watch()
        self.gpus = GpuFollower(
            lambda: self.listing.latest,
            self.state,
            self.life.first.known,
            lambda known: self.follower.follow_gpus(known),
            self.health.look_closer,
            self.stop,
        )
        self.follower = ConfigFollower(
            self.config_watch,
            self.gpus,
            self.service,
            self.memory,
            self.arbiters,
            self.life.kept,
            self.api is not None,
            settings.check_node,
        )
        self.beats.look_at("the label that chooses a config", self.life.label.beat)
        ends.callback(self.life.label.stop)
        self.life.label.start()

    def _tell_the_cluster(self, ends: contextlib.ExitStack) -> None:
        """The node's labels, and its inventory for schedulers."""
        settings = self.settings
        self.node_labels = LabelPublisher(
            lambda: self.config_watch.config.labels,
            what_is_offered(self.state),
            output_of(
                NodeObjects(self.api) if self.api else None,
                settings.node_name,
                self.domain,
                self.beats.of("labels of the node"),
            ),
        )
        ends.callback(self.node_labels.stop)
        self.publish_problem: Callable[[], str] = str
        self.feeds: list[tuple[float, Callable[[], object]]] = []
        if self.api is not None and settings.publish:
            lease = InventoryLease(NodeLease(self.api, settings.node_name))
            self.beats.look_at("the node's inventory", lease.beat)
            ends.callback(lease.stop)
            lease.start()
            self.publish_problem = lease.problem
            self.feeds.append((_INVENTORY_EVERY_S, InventoryFeed(self.state, lease.put).look))

    def _answer_the_kubelet(self) -> None:
        """The resources that it is offered."""
        self.durations = AllocateDurations()
        self.plugins = Plugins(
            self.service, self.settings.kubelet_dir / "device-plugins", self.durations
        )
        self.registrar = Registrar(self.plugins.directory, self.plugins.wanted)
        self.foreign = ForeignPluginWatch(
            self.plugins.directory,
            lambda: [plugin.resource for plugin in self.plugins.wanted()],
            self.service.gpu_uuids,
        )

    def _answer_everybody_else(self, ends: contextlib.ExitStack) -> str:
        """What scrapers, probes and `vgpuctl` ask; returns where, as HOST:PORT.

        Raises:
            VgpuError: the address is taken or cannot be had.
        """
        metrics = Metrics(
            NodeCollector(
                self.service,
                self.store,
                lambda: (self.config_watch.good, self.config_watch.config.digest),
                self.registrar.registrations,
                lambda: self.memory.findings,
                self.mps.states,
                lambda: self.arbiters.counted,
                self.publish_problem,
                self.pods.problem,
                lambda: self.registrar.unheard,
                self.files.restored,
            ),
            self.durations,
        )
        self.said = AgentState(
            Identity(self.settings.node_name, self.store.build),
            self.config_watch,
            self.service,
            self.registrar.registrations,
            lambda: self.memory.findings,
            lambda: self.life.label.problem,
            self.injection.shown,
            pods_problem=self.pods.problem,
            publish_problem=self.publish_problem,
            sees_node_pids=sees_node_pids(os.environ),
            helper_problem=self.beats.problem,
            unheard=lambda: self.registrar.unheard,
        )
        return _serve_pages(self.settings, self.service, metrics, self.said, ends)

    def turn(self) -> None:
        """Does the duties until the agent is stopped.

        Raises:
            DriverReplacedError: see `run`.
        """
        service = self.service
        run_duties(
            [
                (_INJECTION_EVERY_S, lambda: self.injection.look(self.state.gpus)),
                (_CONFIG_EVERY_S, self.follower.follow),
                (_ARBITERS_EVERY_S, self.arbiters.look),
                (_KUBELET_EVERY_S, self.registrar.look),
                (_KUBELET_EVERY_S, TimeSlices(service).look),
                (_KUBELET_EVERY_S, lambda: self.health.follow(service.gpu_uuids())),
                (_GPUS_EVERY_S, self.gpus.look),
                (_PODS_EVERY_S, service.reconcile),
                (_PODS_EVERY_S, lambda: self.labels.follow(service.owners_for_labels())),
                (_COMPACT_EVERY_S, self.checkpoint.compact),
                (_COMPACT_EVERY_S, self.life.kept.look),
                (_MPS_EVERY_S, self.mps.look),
                (_SPARE_EVERY_S, self.store.spare.fill),
                (_FILES_EVERY_S, self.files.look),
                (_FOREIGN_EVERY_S, self.foreign.look),
                (_LABELS_EVERY_S, lambda: self.node_labels.look(runtime.monotonic())),
                *self.feeds,
            ],
            self.said.turned,
            self.stop,
        )
        if self.gpus.failure is not None:
            raise self.gpus.failure


def _closest_on(state: NodeState) -> Closest:
    """Returns what tells which of some GPUs lie close together (see `topology.closest`)."""

    def closest(uuids: Sequence[str], count: int, required: Collection[str]) -> tuple[str, ...]:
        gpus = devices(state.gpus)
        return topology.closest([g for g in gpus if g.uuid in uuids], count, required)

    return closest


def _serve_pages(
    settings: AgentSettings,
    service: SliceService,
    metrics: Metrics,
    said: AgentState,
    ends: contextlib.ExitStack,
) -> str:
    """Answers scrapers, probes and `vgpuctl` from now on; returns where, as HOST:PORT.

    Raises:
        VgpuError: the address is taken or cannot be had.
    """
    slices = SlicesPage(settings.node_name, settings.run_dir, service.state)
    of_tenants = {
        "/v1/slices": RememberedPage(slices.content).page,
        "/v1/events": RememberedPage(lambda: events_page(settings.state_dir)).page,
        "/v1/state": RememberedPage(lambda: msgspec.json.encode(said.state())).page,
    }
    http = HttpServer()
    ends.callback(http.stop)
    listener = tcp_listener(settings.metrics_address)
    http.listen(
        listener,
        pages(
            {
                "/metrics": metrics.page,
                "/healthz": said.healthz,
                "/readyz": said.readyz,
                **dict.fromkeys(of_tenants, moved),
            }
        ),
        urgent=("/healthz", "/readyz"),
    )
    if settings.pages_address:
        http.listen(tcp_listener(settings.pages_address, PAGES), pages(of_tenants))
    control = settings.run_dir / AGENT_SOCKET
    ends.callback(control.unlink, missing_ok=True)
    http.listen(
        unix_listener(control),
        ControlApi(service.enforcement.set_override, said.state, said.config, metrics.page),
    )
    http.start()
    return join_address(*listener.getsockname()[:2])
