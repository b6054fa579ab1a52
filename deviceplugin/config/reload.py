"""Follows the config file: a new content is taken when it is whole and good, else the old stays.

The content itself is compared, a few times a second: ConfigMap volumes swap links, editors rename
or rewrite in place, and clocks are coarse. A change counts once two looks in a row see the same
bytes, so a file caught half-written is not reported as bad.
"""

import logging
from pathlib import Path

from deviceplugin.log import event
from deviceplugin.model.notices import EventReason, node_notice
from libvgpu.errors import ConfigError

from .loading import AgentConfig, parse_config


class ConfigWatch:
    """The last good config and why the present content is not it; changed by one thread."""

    def __init__(self, path: Path, config: AgentConfig) -> None:
        self.path = path
        self.config = config
        self.problem: ConfigError | None = None
        self.in_part = False  # the present content is in force, but for what `problem` names
        self._taken: bytes | None = config.text.encode()
        self._seen: bytes | None = self._taken

    @property
    def good(self) -> bool:
        """The file's present content is in force."""
        return self.problem is None

    def look(self) -> AgentConfig | None:
        """Returns a new good config, None where there is nothing new.

        A bad file is reported once, with the sentence that says why.
        """
        try:
            content: bytes | None = self.path.read_bytes()
        except OSError as error:
            content, problem = None, error.strerror
        if content == self._taken or content != self._seen:
            self._seen = content
            return None
        self._taken = content
        try:
            if content is None:
                raise ConfigError(f"config file {self.path} cannot be read: {problem}")
            try:
                text = content.decode()
            except UnicodeDecodeError:
                raise ConfigError(f"config file {self.path} is not UTF-8 text") from None
            return parse_config(text, str(self.path), self.config.said)
        except ConfigError as error:
            self.reject(error)
            return None

    def reject(self, error: ConfigError) -> None:
        """Notes that the present content is not taken, and says why."""
        self.problem, self.in_part = error, False
        event(
            logging.ERROR,
            "config rejected, the last good one stays",
            notice=node_notice(EventReason.CONFIG_REJECTED, error.message),
            reason=error.message,
            hint=error.hint or "none",
        )

    def take(self, config: AgentConfig, left_out: ConfigError | None = None) -> None:
        """Notes that ``config`` is in force.

        Args:
            left_out: what of it is not, and why.
        """
        self.config = config
        self.problem, self.in_part = left_out, left_out is not None
        if left_out is not None:
            event(
                logging.ERROR,
                "a part of the config is skipped",
                notice=node_notice(EventReason.CONFIG_PART_SKIPPED, left_out.message),
                reason=left_out.message,
                hint=left_out.hint or "none",
            )
