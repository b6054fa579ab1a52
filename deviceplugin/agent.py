"""Puts the node agent together and runs it.

One loop, in the main thread, does everything that is not asked for by the kubelet: follows the
config file, keeps the plugins registered, asks podresources, sees to the MPS daemons. The kubelet's
calls come in the gRPC servers' threads and meet the loop in `SliceService`'s lock only.
"""

import fcntl
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from libvgpu.errors import ConfigError, VgpuError
from libvgpu.limits import Family

from .checkpoint import Checkpoint
from .config import AgentConfig, load_config
from .inventory import Inventory
from .kubelet.plugin import PluginServer
from .kubelet.podresources import PodResources
from .kubelet.registrar import Registrar
from .layout import lay_out
from .log import LOGGER, event
from .metrics import MetricsServer, NodeCollector
from .mps_keeper import MpsKeeper
from .reload import ConfigWatch
from .service import SliceService
from .slices import SliceStore
from .units import Half

_CONFIG_EVERY_S = 0.2
_KUBELET_EVERY_S = 0.5
_PODS_EVERY_S = 1.0
_MPS_EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What the agent is started with.

    Attributes:
        metrics_address: HOST:PORT.
        node_name: for log lines.
        spawn_mps: whether to start the MPS daemons where nobody runs them.
    """

    config: Path
    kubelet_dir: Path
    state_dir: Path
    run_dir: Path
    metrics_address: str
    node_name: str
    spawn_mps: bool = True


def run(settings: Settings, inventory: Inventory, stop: threading.Event) -> None:
    """Runs the agent until ``stop`` is set.

    Raises:
        VgpuError: bad config, no GPUs, no room on disk, or another agent is running; nothing is
            registered then.
    """
    config = load_config(settings.config)
    gpus = inventory.gpus()
    layout = lay_out(config, gpus)
    _say_what_waits(config)
    store = SliceStore(settings.run_dir, settings.state_dir)
    store.prepare()
    with _only_agent(settings.state_dir):
        mps = MpsKeeper(
            settings.config.absolute(),
            settings.run_dir,
            tuple(g.gpu.uuid for g in layout.of_family(Family.MPS)),
            settings.spawn_mps,
        )
        resources = PodResources(settings.kubelet_dir, config.resource_domain)
        service = SliceService(
            layout, config, store, Checkpoint(settings.state_dir), resources.list, mps.wait
        )
        watch = ConfigWatch(settings.config, config)
        metrics = MetricsServer(
            NodeCollector(service, store, lambda: (watch.good, watch.config.digest))
        )
        directory = settings.kubelet_dir / "device-plugins"
        plugins = [
            PluginServer(service, family, half, directory, metrics.observe_allocate)
            for family in layout.families()
            for half in Half
        ]
        metrics.prepare(plugin.resource for plugin in plugins)
        registrar = Registrar(directory, plugins)

        def follow_config() -> None:
            new = watch.look()
            if new is None:
                return
            try:
                changed = lay_out(new, gpus) != layout
            except ConfigError as error:
                watch.reject(error)
                return
            service.apply_rules(new)
            watch.take(new)
            event(logging.INFO, "config in force", digest=new.digest[:12], rules=len(new.rules))
            if changed:
                event(logging.WARNING, "changed sharing takes effect when the agent restarts")
            _say_what_waits(new)

        try:
            address = metrics.start(settings.metrics_address)
            event(logging.INFO, "agent started", node=settings.node_name, gpus=len(layout.gpus),
                  resources=",".join(p.resource for p in plugins) or "none",
                  metrics=address)  # fmt: skip
            _loop(
                [
                    (_CONFIG_EVERY_S, follow_config),
                    (_KUBELET_EVERY_S, registrar.look),
                    (_PODS_EVERY_S, service.reconcile),
                    (_MPS_EVERY_S, mps.look),
                ],
                stop,
            )
        finally:
            registrar.stop()
            metrics.stop()
            resources.close()
        event(logging.INFO, "agent stopped")


def _loop(duties: list[tuple[float, Callable[[], object]]], stop: threading.Event) -> None:
    """Does each duty every so many seconds; one that fails is logged and tried again.

    The same failure of a duty is logged once, until it has succeeded.
    """
    due = [0.0] * len(duties)
    said = [""] * len(duties)
    while not stop.is_set():
        now = time.monotonic()
        for number, (period_s, duty) in enumerate(duties):
            if now < due[number]:
                continue
            due[number] = now + period_s
            try:
                duty()
                said[number] = ""
            except Exception as error:  # the agent must outlive a fault in one of its duties
                if str(error) == said[number]:
                    continue
                said[number] = str(error)
                if isinstance(error, VgpuError):
                    event(logging.ERROR, error.message, hint=error.hint or "none")
                else:
                    LOGGER.exception("a duty of the agent failed")
        stop.wait(max(0.0, min(due) - time.monotonic()))


def _say_what_waits(config: AgentConfig) -> None:
    if config.not_served:
        event(logging.WARNING, "parsed and checked, but not served yet",
              keys=", ".join(config.not_served))  # fmt: skip
    for rule in config.rules:
        if rule.needs_labels:
            event(logging.WARNING, "a rule with podLabels never matches: the agent does not know "
                  "labels without the API server", rule=rule.path[2:])  # fmt: skip


def _only_agent(state_dir: Path) -> IO[bytes]:
    path = state_dir / "agent.lock"
    file = open(path, "ab")  # noqa: SIM115 — the caller's `with` closes it
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise VgpuError(f"another agent is running with the state directory {state_dir}") from None
    return file
