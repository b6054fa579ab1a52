"""Puts a new config into force and keeps it; a duty of the loop."""

import logging
import os
from collections.abc import Callable
from dataclasses import replace

from deviceplugin.config.reload import ConfigWatch
from deviceplugin.log import event
from deviceplugin.model.agent_config import AgentConfig
from deviceplugin.policy.devices.gpu_numbers import record_of
from deviceplugin.policy.devices.known_gpus import KnownGpus
from deviceplugin.policy.devices.layout import Layout, absent_devices, lay_out
from deviceplugin.store.container_answer import missing_nodes
from deviceplugin.store.kept_config import KeptConfig
from deviceplugin.watch.watcher import MemoryWatch
from libvgpu.errors import ConfigError

from .gpu_arbiters import NodeArbiters
from .gpu_follower import GpuFollower
from .service import SliceService


class ConfigFollower:
    """Brings the config to the parts that go by it; used by the agent's main thread."""

    def __init__(
        self,
        watch: ConfigWatch,
        gpus: GpuFollower,
        service: SliceService,
        memory: MemoryWatch,
        arbiters: NodeArbiters,
        kept: KeptConfig,
        has_api: bool,
        check_node: Callable[[AgentConfig], None],
    ) -> None:
        """Says what of the config that the agent starts with has no effect here.

        Args:
            watch: of the config file, with that config.
            gpus: knows those of the node, and which index each has.
            kept: where the config in force is kept for a restart.
            has_api: whether there is an API server that knows labels.
            check_node: see `Candidates`.
        """
        self._watch, self._gpus, self._has_api = watch, gpus, has_api
        self._known = gpus.known  # those that the config in force was held against
        self._service, self._memory, self._arbiters = service, memory, arbiters
        self._kept, self._first = kept, watch.config
        self._check_node = check_node
        # What was not there when the agent started, or went since, may be named again, and nothing
        # else.
        self._absent, skipped = absent_devices(self._first, self._known.here, self._known.lost)
        if skipped is not None:
            watch.skip(skipped)
        self._keep()
        self._say_in_force()
        self._say_missing_nodes(service.layout)

    def follow(self) -> None:
        """Puts what is new in the config, or another one that was chosen, into force."""
        new = self._watch.look()
        if new is None:
            return
        known = self._known
        if not self._kept.record.holds_for(new):
            known = self._gpus.renumbered()
        try:
            self._check_node(new)
            layout = self._laid_out(new, known)
        except ConfigError as error:
            self._watch.reject(error)
            return
        self._memory.policy = new.watch
        try:
            if known != self._known:
                self._gpus.known = self._known = known
                self._service.follow_gpus((*known.here, *known.replaced), layout)
            self._service.follow_config(new, layout)
        finally:
            self._watch.take(new, absent_devices(new, known.here, known.lost)[1])
            self._keep()
        self._arbiters.look()  # new weights count from now, not from the next turn
        self._say_missing_nodes(self._service.layout)
        self._say_in_force()

    def _say_in_force(self) -> None:
        """Says which config is in force, and what of it waits for a restart or has no effect."""
        config, text = self._watch.config, self._watch.in_force
        event(
            logging.INFO,
            "config in force",
            config=text.name or text.place,
            chosen_by=text.chosen_by or "the only one",
            kept=self._watch.is_kept,
            digest=config.digest[:12],
            rules=len(config.rules),
        )
        if config.resource_domain != self._first.resource_domain:
            event(
                logging.WARNING,
                "a changed resourceDomain takes effect when the agent restarts, "
                "which needs a node without slices",
                domain=config.resource_domain,
            )
        if config.forms != self._first.forms:
            event(
                logging.WARNING,
                "changed forms of the answer (flags) take effect when the agent restarts",
            )
        for rule in config.rules:
            if rule.needs_labels and not self._has_api:
                event(
                    logging.WARNING,
                    "a rule with podLabels never matches: the agent does not know "
                    "labels without the API server",
                    rule=rule.path[2:],
                )

    def follow_gpus(self, known: KnownGpus) -> None:
        """Shares other GPUs as the config in force says.

        Where it does not fit them, all stays as it is, and the config counts as skipped in part.
        """
        config = self._watch.config
        absent, skipped = absent_devices(config, known.here, known.lost)
        self._absent |= absent
        try:
            layout = self._laid_out(config, known)
        except ConfigError as error:
            self._say_skipped(config, error)
            return
        self._known = known
        self._service.follow_gpus((*known.here, *known.replaced), layout)
        self._say_skipped(config, skipped)
        self._keep()
        self._arbiters.look()
        self._say_missing_nodes(self._service.layout)

    def _laid_out(self, config: AgentConfig, known: KnownGpus) -> Layout:
        # The domain stays until a restart, in every name that has it.
        named = replace(config, resource_domain=self._first.resource_domain)
        return lay_out(named, known.here, self._absent, known.lost)

    def _keep(self) -> None:
        """Keeps the config in force, and which GPU has which index, for the next start."""
        known, before = self._known, self._kept.record
        record = record_of(self._watch.config, known.here, known.lost, before)
        self._kept.keep(self._watch.in_force, record)

    def _say_skipped(self, config: AgentConfig, skipped: ConfigError | None) -> None:
        before = self._watch.problem
        if before is not None and not self._watch.in_part:
            return  # the file was edited since, and what it says now is not in force
        if str(before or "") != str(skipped or ""):
            self._watch.take(config, skipped)

    def _say_missing_nodes(self, layout: Layout) -> None:
        gpus = [shared.gpu for shared in layout.gpus]
        missing = missing_nodes(gpus, self._first.forms, os.path.exists)
        if missing:
            event(
                logging.WARNING,
                "device nodes that flags.plugin.passDeviceSpecs asks for are not "
                "there and are left out",
                nodes=", ".join(missing),
            )
