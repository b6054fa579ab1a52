"""The quotas of the config file, read again when it changes; a bad file leaves the last ones.

The agents read the same file and check all of it; here only ``quotas`` counts. Read by a thread of
its own, asked by all.
"""

import logging
import threading
from pathlib import Path

from deviceplugin.config.source import ConfigSource, parse_text
from deviceplugin.log import event
from deviceplugin.model.agent_config import AgentConfig
from deviceplugin.model.quotas import Quota
from libvgpu.errors import ConfigError

LOOK_EVERY_S = 2.0


class QuotaFile:
    """The file.

    Attributes:
        config: the last good content.
        is_good: the present content is in force.
    """

    def __init__(self, path: Path) -> None:
        """Reads it.

        Raises:
            ConfigError: it is not there, or not good.
        """
        self._source = ConfigSource(path)
        self._seen = self._source.read()
        self.config: AgentConfig = parse_text(self._seen)
        self.is_good = True
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="config", daemon=True)

    @property
    def quotas(self) -> tuple[Quota, ...]:
        """Those in force."""
        return self.config.quotas

    def start(self) -> None:
        """Begins to follow it."""
        self._thread.start()

    def stop(self) -> None:
        """Ends it."""
        self._stopping.set()

    def look(self) -> None:
        """Takes a new content, once."""
        found = self._source.read()
        if found == self._seen:
            return
        self._seen = found
        try:
            config = parse_text(found)
        except ConfigError as error:
            self.is_good = False
            event(
                logging.ERROR,
                "config rejected, the last quotas stay",
                reason=error.message,
                hint=error.hint or "none",
            )
            return
        if config.resource_domain != self.config.resource_domain:
            event(
                logging.WARNING,
                "the config has another resourceDomain, which takes effect at the next start",
                resource_domain=config.resource_domain,
            )
        self.config, self.is_good = config, True
        event(logging.INFO, "quotas in force", count=len(config.quotas), digest=config.digest[:12])

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_EVERY_S):
            self.look()
