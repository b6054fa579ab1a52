"""Puts a new config into force and keeps it; a duty of the loop."""

import logging
import os
from collections.abc import Callable
from dataclasses import replace

from deviceplugin.config.loading import AgentConfig
from deviceplugin.config.reload import ConfigWatch
from deviceplugin.log import event
from deviceplugin.model.gpus import Gpu
from deviceplugin.policy.known_gpus import KnownGpus
from deviceplugin.policy.layout import Layout, absent_devices, lay_out
from deviceplugin.store.container_answer import missing_nodes
from deviceplugin.store.kept_config import KeptConfig
from deviceplugin.watch.watcher import MemoryWatch
from libvgpu.errors import ConfigError

from .gpu_arbiters import NodeArbiters
from .service import SliceService


class ConfigFollower:
    """Brings the config to the parts that go by it; used by the agent's main thread."""

    def __init__(
        self,
        watch: ConfigWatch,
        gpus: tuple[Gpu, ...],
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
            gpus: those of the node when the agent starts.
            kept: where the config in force is kept for a restart.
            has_api: whether there is an API server that knows labels.
            check_node: see `Candidates`.
        """
        self._watch, self._gpus, self._has_api = watch, gpus, has_api
        self._service, self._memory, self._arbiters = service, memory, arbiters
        self._kept, self._first = kept, watch.config
        self._check_node = check_node
        # What was not there when the agent started, or went since, may be named again, and nothing
        # else.
        self._absent, skipped = absent_devices(self._first, gpus)
        if skipped is not None:
            watch.skip(skipped)
        if not watch.is_kept:
            kept.keep(watch.in_force)
        self._say_in_force()
        self._say_what_waits(self._first)
        self._say_missing_nodes(service.layout)

    def follow(self) -> None:
        """Puts what is new in the config, or another one that was chosen, into force."""
        new = self._watch.look()
        if new is None:
            return
        try:
            self._check_node(new)
            wanted = lay_out(new, self._gpus, self._absent)
        except ConfigError as error:
            self._watch.reject(error)
            return
        self._memory.follow_policy(new.watch)
        try:
            layout = replace(wanted, resource_domain=self._first.resource_domain)
            self._service.follow_config(new, layout)
        finally:
            self._watch.take(new, absent_devices(new, self._gpus)[1])
            self._kept.keep(self._watch.in_force)
        self._arbiters.look()  # new weights count from now, not from the next turn
        self._say_missing_nodes(self._service.layout)
        self._say_in_force()
        self._say_what_waits(new)

    def _say_in_force(self) -> None:
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

    def follow_gpus(self, known: KnownGpus) -> None:
        """Shares other GPUs as the config in force says.

        Where it does not fit them, all stays as it is, and the config counts as skipped in part.
        """
        config = self._watch.config
        absent, skipped = absent_devices(config, known.here)
        self._absent |= absent
        try:
            wanted = lay_out(config, known.here, self._absent)
        except ConfigError as error:
            self._say_skipped(config, error)
            return
        self._gpus = known.here
        layout = replace(wanted, resource_domain=self._first.resource_domain)
        self._service.follow_gpus((*known.here, *known.replaced), layout)
        self._say_skipped(config, skipped)
        self._arbiters.look()
        self._say_missing_nodes(self._service.layout)

    def _say_skipped(self, config: AgentConfig, skipped: ConfigError | None) -> None:
        before = self._watch.problem
        if before is not None and not self._watch.in_part:
            return  # the file was edited since, and what it says now is not in force
        if str(before or "") != str(skipped or ""):
            self._watch.take(config, skipped)

    def _say_what_waits(self, config: AgentConfig) -> None:
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
