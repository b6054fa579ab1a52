"""Puts the node agent together and runs it.

One loop, in the main thread, does everything that is not asked for by the kubelet: follows the
config file, keeps the plugins registered, asks podresources, sees to the MPS daemons and to the
arbiters of GPUs shared in time. The kubelet's calls come in the gRPC servers' threads, scrapes,
probes and `vgpuctl` in those of `http.server`; they meet the loop in `SliceService`'s lock only.
"""

import contextlib
import fcntl
import logging
import os
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from deviceplugin.config.loading import AgentConfig, load_config
from deviceplugin.config.reload import ConfigWatch
from deviceplugin.core.gpu_arbiters import NodeArbiters
from deviceplugin.core.service import SliceService
from deviceplugin.http.agent_state import AgentState
from deviceplugin.http.control_api import ControlApi
from deviceplugin.http.listeners import AGENT_SOCKET, tcp_listener, unix_listener
from deviceplugin.http.metrics import Metrics, NodeCollector
from deviceplugin.http.pages import pages
from deviceplugin.http.server import HttpServer
from deviceplugin.inventory import topology
from deviceplugin.inventory.health_watch import HealthWatch
from deviceplugin.inventory.nvml import Inventory
from deviceplugin.kube.api_client import ApiServer
from deviceplugin.kube.event_sender import NodeEvents
from deviceplugin.kube.pod_labels import PodLabels
from deviceplugin.kubelet.answer_codec import mounts_of
from deviceplugin.kubelet.plugin_server import PluginServer
from deviceplugin.model.gpus import Gpu
from deviceplugin.model.units import Half
from deviceplugin.mps.keeper import MpsKeeper
from deviceplugin.policy.layout import Layout, absent_devices, lay_out
from deviceplugin.recovery.kubelet_checkpoint import KubeletCheckpoint
from deviceplugin.store.checkpoint import Checkpoint
from deviceplugin.store.container_answer import missing_nodes
from deviceplugin.store.slice_files import SliceStore
from deviceplugin.watch.process_attribution import ProcessAttribution, RecordedPods
from deviceplugin.watch.watcher import MemoryWatch
from libvgpu.errors import ConfigError, VgpuError
from libvgpu.limits import Family

from .kubelet.podresources import PodResources
from .kubelet.registrar import Registrar
from .log import event
from .loop import run_duties

# Multiples of one period, so that an idle agent wakes three times a second and no more.
_CONFIG_EVERY_S = 0.35
#: A container takes longer than this to begin its first work.
_ARBITERS_EVERY_S = 0.7
_KUBELET_EVERY_S = 0.7
_PODS_EVERY_S = 1.05
_COMPACT_EVERY_S = 4.9
_MPS_EVERY_S = 2.1
_SPARE_EVERY_S = 0.7


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What the agent is started with.

    Attributes:
        metrics_address: HOST:PORT.
        node_name: for log lines.
        spawn_mps: whether to start the MPS daemons where nobody runs them.
        watch_health: whether NVML knows the GPUs of the inventory and is asked how they are, and
            what runs on them.
    """

    config: Path
    kubelet_dir: Path
    state_dir: Path
    run_dir: Path
    metrics_address: str
    node_name: str
    spawn_mps: bool = True
    watch_health: bool = False


def run(settings: AgentSettings, inventory: Inventory, stop: threading.Event) -> None:
    """Runs the agent until ``stop`` is set.

    Raises:
        VgpuError: bad config, no GPUs, no room on disk, or another agent is running; nothing is
            registered then.
    """
    config = load_config(settings.config)
    gpus = inventory.gpus()
    # A GPU that is lost must not keep the others from being served, so its entry is left out here.
    absent, _ = absent_devices(config, gpus)
    layout = lay_out(config, gpus, absent)
    _say_missing_nodes(config, layout)
    store = SliceStore(settings.run_dir, settings.state_dir, config.forms, gpus)
    store.prepare()
    with _only_agent(settings.state_dir):
        with contextlib.ExitStack() as ends:
            _run(settings, config, gpus, layout, store, ends, stop)
        event(logging.INFO, "agent stopped")


def _run(
    settings: AgentSettings,
    config: AgentConfig,
    gpus: tuple[Gpu, ...],
    layout: Layout,
    store: SliceStore,
    ends: contextlib.ExitStack,
    stop: threading.Event,
) -> None:
    api = ApiServer.from_environment(os.environ)
    events = NodeEvents(api, settings.node_name)
    ends.callback(events.stop)
    _say_what_waits(config, api is not None)
    labels = PodLabels(api, settings.state_dir)
    mps = MpsKeeper(settings.config.absolute(), settings.run_dir, settings.spawn_mps)
    resources = PodResources(settings.kubelet_dir, config.resource_domain)
    ends.callback(resources.close)
    checkpoint = Checkpoint(settings.state_dir)
    witness = KubeletCheckpoint(settings.kubelet_dir, config.resource_domain, mounts_of).read
    service = SliceService(
        layout,
        config,
        store,
        checkpoint,
        resources.list,
        mps.wait,
        witness=witness,
        closest=lambda uuids, count, required: topology.closest(
            [gpu for gpu in gpus if gpu.uuid in uuids], count, required
        ),
        labels=labels.of,
        gpus=gpus,
    )
    mps.wanted_gpus, mps.owners_on = service.mps_gpus, service.owners_on
    ends.callback(labels.stop)
    labels.start(service.follow_labels)
    watch = ConfigWatch(settings.config, config)
    memory = MemoryWatch(
        lambda: {shared.gpu.uuid: shared.family for shared in service.layout.gpus},
        service.watched,
        service.set_unaccounted,
        ProcessAttribution(settings.run_dir / "allocations", RecordedPods(witness).read),
        config.watch,
    )
    absent, left_out = absent_devices(config, gpus)
    if left_out is not None:
        watch.take(config, left_out)
    metrics = Metrics(
        NodeCollector(
            service,
            store,
            lambda: (watch.good, watch.config.digest),
            lambda: registrar.registrations(),
            lambda: memory.findings,
            mps.states,
        )
    )
    directory = settings.kubelet_dir / "device-plugins"
    servers = {
        family: [
            PluginServer(service, family, half, directory, metrics.observe_allocate)
            for half in Half
        ]
        for family in Family
    }

    def plugins() -> list[PluginServer]:
        """Returns the servers of the families that have a GPU now."""
        found = [server for family in service.layout.families() for server in servers[family]]
        metrics.prepare(server.resource for server in found)
        return found

    registrar = Registrar(directory, plugins)
    state = AgentState(
        watch,
        registrar.registrations,
        settings.node_name,
        store.build,
        lambda: tuple(service.mps_gpus()),
        unwell=service.unwell,
        watch_findings=lambda: memory.findings,
        draining=service.draining,
    )
    http = HttpServer()
    ends.callback(http.stop)
    listener = tcp_listener(settings.metrics_address)
    http.listen(
        listener,
        pages({"/metrics": metrics.page, "/healthz": state.healthz, "/readyz": state.readyz}),
    )
    control = settings.run_dir / AGENT_SOCKET
    ends.callback(control.unlink, missing_ok=True)
    http.listen(
        unix_listener(control),
        ControlApi(service.set_override, service.clear_override, state.state),
    )
    http.start()
    ends.callback(registrar.stop)
    health = HealthWatch(_uuids(service.layout), service.set_unwell)
    if settings.watch_health:
        ends.callback(health.stop)
        health.start()
        ends.callback(memory.stop)
        memory.start()
    arbiters = NodeArbiters(settings.run_dir)
    ends.callback(arbiters.stop)

    def follow_config() -> None:
        new = watch.look()
        if new is None:
            return
        try:
            # What was not there when the agent started may be named again, and nothing else.
            wanted = lay_out(new, gpus, absent)
        except ConfigError as error:
            watch.reject(error)
            return
        memory.policy = new.watch
        try:
            service.follow_config(new, replace(wanted, resource_domain=config.resource_domain))
        finally:
            watch.take(new, absent_devices(new, gpus)[1])
        arbiters.look()  # new weights count from now, not from the next turn
        _say_missing_nodes(config, service.layout)
        event(logging.INFO, "config in force", digest=new.digest[:12], rules=len(new.rules))
        if new.resource_domain != config.resource_domain:
            event(
                logging.WARNING,
                "a changed resourceDomain takes effect when the agent restarts, "
                "which needs a node without slices",
                domain=new.resource_domain,
            )
        if new.forms != config.forms:
            event(
                logging.WARNING,
                "changed forms of the answer (flags) take effect when the agent restarts",
            )
        _say_what_waits(new, api is not None)

    event(
        logging.INFO,
        "agent started",
        node=settings.node_name,
        gpus=len(layout.gpus),
        resources=",".join(p.resource for p in plugins()) or "none",
        metrics="{}:{}".format(*listener.getsockname()[:2]),
    )
    run_duties(
        [
            (_CONFIG_EVERY_S, follow_config),
            (_ARBITERS_EVERY_S, arbiters.look),
            (_KUBELET_EVERY_S, registrar.look),
            (_KUBELET_EVERY_S, lambda: health.follow(_uuids(service.layout))),
            (_PODS_EVERY_S, service.reconcile),
            (_PODS_EVERY_S, lambda: labels.follow(service.owners_for_labels())),
            (_COMPACT_EVERY_S, checkpoint.compact),
            (_MPS_EVERY_S, mps.look),
            (_SPARE_EVERY_S, store.spare.fill),
        ],
        state.turned,
        stop,
    )


def _uuids(layout: Layout) -> list[str]:
    return [shared.gpu.uuid for shared in layout.gpus]


def _say_what_waits(config: AgentConfig, has_api: bool) -> None:
    if config.not_served:
        event(
            logging.WARNING,
            "parsed and checked, but not served yet",
            keys=", ".join(config.not_served),
        )
    for rule in config.rules:
        if rule.needs_labels and not has_api:
            event(
                logging.WARNING,
                "a rule with podLabels never matches: the agent does not know "
                "labels without the API server",
                rule=rule.path[2:],
            )


def _say_missing_nodes(config: AgentConfig, layout: Layout) -> None:
    gpus = [shared.gpu for shared in layout.gpus]
    missing = missing_nodes(gpus, config.forms, os.path.exists)
    if missing:
        event(
            logging.WARNING,
            "device nodes that flags.plugin.passDeviceSpecs asks for are not "
            "there and are left out",
            nodes=", ".join(missing),
        )


def _only_agent(state_dir: Path) -> IO[bytes]:
    path = state_dir / "agent.lock"
    file = open(path, "ab")  # noqa: SIM115 — the caller's `with` closes it
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise VgpuError(f"another agent is running with the state directory {state_dir}") from None
    return file
