"""Follows the config: a new content is taken when it is whole and good, else the old one stays.

The content itself is compared, a few times a second: ConfigMap volumes swap links, editors rename
or rewrite in place, and clocks are coarse. A change counts once two looks in a row see the same,
so a file caught half-written is not reported as bad. Of several named configs, another choice is a
change like an edit.
"""

import logging

from deviceplugin.log import event
from deviceplugin.model.agent_config import AgentConfig, ConfigText
from deviceplugin.model.notices import EventReason, node_notice
from libvgpu.errors import ConfigError

from .source import ConfigSource, parse_text


class ConfigWatch:
    """The last good config and why the present content is not it; changed by one thread.

    Attributes:
        config: what is in force.
        in_force: its text, with where it came from.
        present: the content that was last judged; `in_force` unless that was rejected.
        problem: why the present content, or a part of it, is not in force.
        in_part: the present content is in force, but for what `problem` names.
        is_kept: what is in force was kept from an earlier run, as the present content is bad.
    """

    def __init__(
        self,
        source: ConfigSource,
        present: ConfigText,
        config: AgentConfig,
        kept: ConfigText | None = None,
        problem: ConfigError | None = None,
    ) -> None:
        """Begins with the config that the agent starts with.

        Args:
            source: what is followed.
            present: what it said at the start.
            kept: the text of ``config``, where that is not the present one.
            problem: why it is not; reported as for an edit.
        """
        self._source = source
        self.config = config
        self.present = self._seen = present
        self.in_force = kept or present
        self.is_kept = kept is not None
        self.problem: ConfigError | None = None
        self.in_part = False
        if problem is not None:
            self.reject(problem)

    @property
    def good(self) -> bool:
        """The present content is in force."""
        return self.problem is None

    def look(self) -> AgentConfig | None:
        """Returns a new good config, None where there is nothing new.

        A bad file is reported once, with the sentence that says why.
        """
        content = self._source.read()
        if content == self.present or content != self._seen:
            self._seen = content
            return None
        self.present = content
        try:
            return parse_text(content, self.config.said)
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
            in_force=self.in_force.name or self.in_force.place,
            digest=self.config.digest[:12],
        )

    def take(self, config: AgentConfig, left_out: ConfigError | None = None) -> None:
        """Notes that ``config``, which the present content says, is in force.

        Args:
            left_out: what of it is not, and why.
        """
        self.config, self.in_force, self.is_kept = config, self.present, False
        self.problem = None
        self.in_part = False
        if left_out is not None:
            self.skip(left_out)

    def skip(self, left_out: ConfigError) -> None:
        """Notes what of the config in force is not, and why; says it."""
        if self.problem is None:
            self.problem, self.in_part = left_out, True
        event(
            logging.ERROR,
            "a part of the config is skipped",
            notice=node_notice(EventReason.CONFIG_PART_SKIPPED, left_out.message),
            reason=left_out.message,
            hint=left_out.hint or "none",
        )
