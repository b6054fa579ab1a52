"""Puts the node agent together and runs it.

One loop, in the main thread, does everything that is not asked for by the kubelet: follows the
config file, keeps the plugins registered, asks podresources, sees to the MPS daemons and to the
arbiters of GPUs shared in time. The kubelet's calls come in the gRPC servers' threads, scrapes,
probes and `vgpuctl` in those of `http.server`; they meet the loop in `NodeState`'s lock only.
"""

import contextlib
import json
import logging
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from deviceplugin import runtime
from deviceplugin.cdi.injection import NodeInjection
from deviceplugin.core.config_follower import ConfigFollower
from deviceplugin.core.config_life import ConfigLife, open_config
from deviceplugin.core.container_files import ContainerFiles
from deviceplugin.core.gpu_arbiters import NodeArbiters
from deviceplugin.core.gpu_follower import GpuFollower
from deviceplugin.core.node_injection import node_injection
from deviceplugin.core.parts import Sources
from deviceplugin.core.service import SliceService
from deviceplugin.core.time_slices import TimeSlices
from deviceplugin.http.agent_state import AgentState, Identity
from deviceplugin.http.control_api import ControlApi
from deviceplugin.http.listeners import AGENT_SOCKET, join_address, tcp_listener, unix_listener
from deviceplugin.http.metrics import AllocateDurations, Metrics, NodeCollector
from deviceplugin.http.pages import pages
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
from deviceplugin.policy.known_gpus import devices
from deviceplugin.policy.layout import Layout
from deviceplugin.policy.placement import Closest
from deviceplugin.recovery.foreign_plugins import ForeignPluginWatch
from deviceplugin.recovery.kubelet_checkpoint import KubeletCheckpoint
from deviceplugin.store.agent_lock import only_agent
from deviceplugin.store.checkpoint import Checkpoint
from deviceplugin.store.event_file import EventFile, events_page
from deviceplugin.store.node_state import NodeState
from deviceplugin.store.slice_files import SliceStore
from deviceplugin.watch.nvml_processes import read_gpus
from deviceplugin.watch.pid_visibility import sees_node_pids
from deviceplugin.watch.process_attribution import ProcessAttribution, RecordedPods
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
    # What Kubernetes tells, and what it is told.
    api = ApiServer.from_environment(os.environ)
    life = open_config(
        settings.config,
        settings.selection,
        settings.said,
        api,
        settings.node_name,
        settings.state_dir,
        inventory,
        settings.check_node,
    )
    config, gpus = life.first.config, life.first.known.here
    beats = Heartbeats()
    watch = GpuWatch(inventory, life.listed, turned=beats.of("the list of GPUs"))
    node = NodeGpus(life.first.layout, watch, beats)
    injection = node_injection(config.forms, settings.host_root, settings.node_name, api, gpus)
    store = SliceStore(settings.run_dir, settings.state_dir, injection.forms, gpus)
    store.prepare()
    with only_agent(settings.state_dir):
        with contextlib.ExitStack() as ends:
            _run(settings, api, life, node, store, injection, ends, stop)
        event(logging.INFO, "agent stopped")


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """How the config wants the GPUs of the node to be shared, and who lists them.

    Attributes:
        watch: with those that were listed first.
        beats: of the threads that follow them.
    """

    wanted: Layout
    watch: GpuWatch
    beats: Heartbeats


def _closest_on(state: NodeState) -> Closest:
    """Returns what tells which of some GPUs lie close together (see `topology.closest`)."""

    def closest(uuids: Sequence[str], count: int, required: Collection[str]) -> tuple[str, ...]:
        gpus = devices(state.gpus)
        return topology.closest([g for g in gpus if g.uuid in uuids], count, required)

    return closest


def _run(  # noqa: PLR0915 - puts the agent together, in the order that counts
    settings: AgentSettings,
    api: ApiServer | None,
    life: ConfigLife,
    node: NodeGpus,
    store: SliceStore,
    injection: NodeInjection,
    ends: contextlib.ExitStack,
    stop: runtime.Event,
) -> None:
    """Makes the parts in the order in which they need each other, and turns the loop.

    What ends first when the agent stops is what was made last.
    """
    config = life.first.config
    ends.enter_context(tapped(EventFile(settings.state_dir).add))
    events = NodeEvents(api, settings.node_name)
    ends.callback(events.stop)
    labels = PodLabels(api, settings.state_dir)
    resources = PodResources(settings.kubelet_dir, config.resource_domain)
    ends.callback(resources.close)
    record = KubeletCheckpoint(settings.kubelet_dir, config.resource_domain, mounts_of)
    pods = FollowedPods(api, settings.kubelet_dir, settings.node_name, config.resource_domain)
    ends.callback(pods.stop)
    pods.start()
    sources = Sources(
        resources.list, record.read, labels.of, pods=pods.source, node=settings.node_name
    )

    # What is kept of the node's allocations, and who changes it.
    checkpoint = Checkpoint(settings.state_dir)
    state = NodeState(checkpoint, node.wanted, life.first.known.here)
    mps = MpsKeeper(
        settings.config.absolute(),
        settings.run_dir,
        settings.spawn_mps,
        state,
        is_running=store.running,
        state_dir=settings.state_dir,
        root=lambda: watch.config.mps_root,
    )

    def until_gpus_are_ready(uuids: Sequence[str], under_mps: bool, within_s: float) -> None:
        injection.check(uuids)
        mps.wait(uuids, under_mps, within_s)

    service = SliceService(
        state, store, config.rules, sources, until_gpus_are_ready, _closest_on(state)
    )
    service.devices.whole = config.whole
    ends.callback(store.held.close)
    files = ContainerFiles(service, store)
    files.look()  # before any container gets a chance to
    ends.callback(labels.stop)
    labels.start(service.follow_labels)

    # What watches GPUs, processes and the config.
    attribution = ProcessAttribution(
        settings.run_dir / "allocations", RecordedPods(record.read).read
    )
    memory_calls: NvmlCalls[str] = NvmlCalls()
    memory = MemoryWatch(
        service,
        attribution,
        config.watch,
        partial(read_gpus, calls=memory_calls),
        turned=node.beats.of("processes on GPUs"),
    )
    xids, problems = counted_xids(os.environ)
    for problem in problems:
        event(logging.WARNING, problem)

    def hanging_elsewhere() -> dict[str, str]:
        by_memory = {uuid: str(answer) for uuid, answer in memory_calls.hanging().items()}
        return hanging(node.watch.latest, state.gpus) | by_memory

    health = HealthWatch(
        service.gpu_uuids(),
        service.set_unhealthy,
        counts=xids.counts,
        hanging=hanging_elsewhere,
        turned=node.beats.of("the health of GPUs"),
    )
    arbiters = NodeArbiters(settings.run_dir)
    watch = life.watch()
    gpus = GpuFollower(
        lambda: node.watch.latest,
        state,
        life.first.known,
        lambda known: follower.follow_gpus(known),
        health.look_closer,
        stop,
    )
    follower = ConfigFollower(
        watch,
        gpus,
        service,
        memory,
        arbiters,
        life.kept,
        api is not None,
        settings.check_node,
    )
    ends.callback(life.label.stop)
    life.label.start()

    node_labels = LabelPublisher(
        lambda: watch.config.labels,
        what_is_offered(state),
        output_of(NodeObjects(api) if api else None, settings.node_name, config.resource_domain),
    )
    ends.callback(node_labels.stop)

    duties = []
    publish_problem: Callable[[], str] = str
    if api is not None and settings.publish:
        lease = InventoryLease(NodeLease(api, settings.node_name))
        ends.callback(lease.stop)
        lease.start()
        duties.append((_INVENTORY_EVERY_S, InventoryFeed(state, lease.put).look))
        publish_problem = lease.problem

    # What the kubelet asks.
    durations = AllocateDurations()
    plugins = Plugins(service, settings.kubelet_dir / "device-plugins", durations)
    registrar = Registrar(plugins.directory, plugins.wanted)
    foreign = ForeignPluginWatch(
        plugins.directory, lambda: [p.resource for p in plugins.wanted()], service.gpu_uuids
    )

    # What scrapers, probes and vgpuctl ask.
    metrics = Metrics(
        NodeCollector(
            service,
            store,
            lambda: (watch.good, watch.config.digest),
            registrar.registrations,
            lambda: memory.findings,
            mps.states,
            lambda: arbiters.counted,
            publish_problem,
            pods.problem,
            lambda: registrar.unheard,
            files.restored,
        ),
        durations,
    )
    said = AgentState(
        Identity(settings.node_name, store.build),
        watch,
        service,
        registrar.registrations,
        lambda: memory.findings,
        lambda: life.label.problem,
        injection.shown,
        pods_problem=pods.problem,
        publish_problem=publish_problem,
        sees_node_pids=sees_node_pids(os.environ),
        helper_problem=node.beats.problem,
        unheard=lambda: registrar.unheard,
    )
    address = _serve_pages(settings, service, metrics, said, ends)
    ends.callback(registrar.stop)
    ends.callback(node.watch.stop)
    node.watch.start()
    if settings.watch_health:
        if xids.is_watched:
            ends.callback(health.stop)
            health.start()
        ends.callback(memory.stop)
        memory.start()
    ends.callback(arbiters.stop)

    event(
        logging.INFO,
        "agent started",
        node=settings.node_name,
        gpus=len(node.wanted.gpus),
        resources=",".join(p.resource for p in plugins.wanted()) or "none",
        metrics=address,
    )
    run_duties(
        [
            (_INJECTION_EVERY_S, lambda: injection.look(state.gpus)),
            (_CONFIG_EVERY_S, follower.follow),
            (_ARBITERS_EVERY_S, arbiters.look),
            (_KUBELET_EVERY_S, registrar.look),
            (_KUBELET_EVERY_S, TimeSlices(service).look),
            (_KUBELET_EVERY_S, lambda: health.follow(service.gpu_uuids())),
            (_GPUS_EVERY_S, gpus.look),
            (_PODS_EVERY_S, service.reconcile),
            (_PODS_EVERY_S, lambda: labels.follow(service.owners_for_labels())),
            (_COMPACT_EVERY_S, checkpoint.compact),
            (_COMPACT_EVERY_S, life.kept.look),
            (_MPS_EVERY_S, mps.look),
            (_SPARE_EVERY_S, store.spare.fill),
            (_FILES_EVERY_S, files.look),
            (_FOREIGN_EVERY_S, foreign.look),
            (_LABELS_EVERY_S, lambda: node_labels.look(runtime.monotonic())),
            *duties,
        ],
        said.turned,
        stop,
    )
    if gpus.failure is not None:
        raise gpus.failure


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
                "/v1/slices": RememberedPage(slices.content).page,
                "/v1/events": RememberedPage(lambda: events_page(settings.state_dir)).page,
                "/v1/state": RememberedPage(lambda: json.dumps(said.state()).encode()).page,
            }
        ),
        urgent=("/healthz", "/readyz"),
    )
    control = settings.run_dir / AGENT_SOCKET
    ends.callback(control.unlink, missing_ok=True)
    http.listen(
        unix_listener(control),
        ControlApi(
            service.set_override, service.clear_override, said.state, said.config, metrics.page
        ),
    )
    http.start()
    return join_address(*listener.getsockname()[:2])
