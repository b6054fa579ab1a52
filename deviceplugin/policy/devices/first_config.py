"""Which config an agent starts with: the present one, or where that is bad the one kept before.

A config is good when it can be read, says what is allowed, and fits the node and its GPUs. Judged
in two steps, since the GPUs are asked for only once there is a config at all. Pure: the caller
reads and reports.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from deviceplugin.model.agent_config import AgentConfig, ConfigText
from deviceplugin.model.gpus import Gpu
from libvgpu.errors import ConfigError

from .gpu_numbers import NO_RECORD, GpuRecord
from .known_gpus import KnownGpus, known_at_start
from .layout import Layout, absent_devices, lay_out


@dataclass(frozen=True, slots=True)
class FirstConfig:
    """What to start with.

    Attributes:
        layout: without what the config names and the node lacks.
        known: the GPUs, with the indexes that the config means.
        present: what the config file says now.
        kept: the text of ``config``, where that is not the present one.
        problem: why the present one is not used; None where it is.
    """

    config: AgentConfig
    layout: Layout
    known: KnownGpus
    present: ConfigText
    kept: ConfigText | None = None
    problem: ConfigError | None = None


class Candidates:
    """The present config and the kept one, of which at least one says something."""

    def __init__(
        self,
        present: ConfigText,
        kept: ConfigText | ConfigError | None,
        parse: Callable[[ConfigText], AgentConfig],
        record: GpuRecord = NO_RECORD,
    ) -> None:
        """Reads the present config, and the kept one only where it must.

        Args:
            kept: the config that was last accepted, why that cannot be told, or None.
            parse: reads either, and raises ConfigError if it is bad or cannot be on this node.
            record: which GPU had which index when the kept one was accepted.

        Raises:
            ConfigError: neither can be used; the sentence says why of both.
        """
        self._present, self._kept = present, kept
        self._parse, self._record = parse, record
        self._parsed: AgentConfig | ConfigError
        try:
            self._parsed = self._parse(present)
        except ConfigError as error:
            self._parsed = error
            self._parse_kept(error)

    @property
    def fail_on_init_error(self) -> bool:
        """What the config that is to be used says; before the GPUs are known, the first of the two
        that says something.
        """
        if isinstance(self._parsed, ConfigError):
            return self._parse_kept(self._parsed)[1].fail_on_init_error
        return self._parsed.fail_on_init_error

    def fit(self, gpus: tuple[Gpu, ...]) -> FirstConfig:
        """Returns the first of the two that fits the GPUs, which have the indexes of NVML.

        Raises:
            ConfigError: neither does.
        """
        if isinstance(self._parsed, ConfigError):
            return self._fit_kept(gpus, self._parsed)
        try:
            layout, known = self._laid_out(self._parsed, gpus)
            return FirstConfig(self._parsed, layout, known, self._present)
        except ConfigError as error:
            return self._fit_kept(gpus, error)

    def _fit_kept(self, gpus: tuple[Gpu, ...], problem: ConfigError) -> FirstConfig:
        text, config = self._parse_kept(problem)
        try:
            layout, known = self._laid_out(config, gpus)
        except ConfigError as error:
            raise _both(problem, error) from None
        return FirstConfig(config, layout, known, self._present, text, problem)

    def _parse_kept(self, problem: ConfigError) -> tuple[ConfigText, AgentConfig]:
        if self._kept is None:
            raise problem
        if isinstance(self._kept, ConfigError):
            raise _both(problem, self._kept)
        try:
            # Messages must not name the present file for what an earlier one said.
            named = replace(self._kept, place=f"{self._kept.place} (kept)")
            return self._kept, self._parse(named)
        except ConfigError as error:
            raise _both(problem, error) from None

    def _laid_out(self, config: AgentConfig, gpus: tuple[Gpu, ...]) -> tuple[Layout, KnownGpus]:
        known = known_at_start(gpus, self._record, config)
        # A GPU that is lost must not keep the others from being served, so its entry is left out.
        absent = absent_devices(config, known.here)[0]
        return lay_out(config, known.here, absent, known.lost), known


def _both(present: ConfigError, kept: ConfigError) -> ConfigError:
    return ConfigError(
        f"{present.message}; and the config kept from before cannot be used: {kept.message}",
        present.hint,
    )
