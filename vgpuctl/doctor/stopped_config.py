"""The config of an agent that is down, read as the agent would at its start.

The present one is named with ``--config``, or by what was kept of the one accepted last
(`deviceplugin.store.kept_config`). Flags that stand on the agent's command line are not known here.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from deviceplugin.config.mps_root import check_mps_root
from deviceplugin.config.source import ConfigSource, parse_text
from deviceplugin.model.agent_config import AgentConfig, ConfigText
from deviceplugin.model.gpus import Gpu
from deviceplugin.policy.devices.first_config import Candidates, FirstConfig
from deviceplugin.policy.devices.mig_layout import mig_differences
from deviceplugin.store.kept_config import FILE, KeptConfig
from libvgpu.errors import ConfigError, VgpuError

from .finding import Finding, fail, ok, warn
from .node_checks import AS_ROOT

_CHECK, _KEPT = "config", "kept-config"


@dataclass(frozen=True, slots=True)
class StoppedConfig:
    """What was found.

    Attributes:
        first: what the agent would start with; None where it would not, or nobody knows.
    """

    findings: tuple[Finding, ...]
    first: FirstConfig | None = None


def look(
    named: Path | None,
    state_dir: Path,
    managed: tuple[Path, ...],
    gpus: tuple[Gpu, ...],
    is_node: bool,
) -> StoppedConfig:
    """Reads the present and the kept config.

    Args:
        named: the present one's file or directory; None: where the kept one came from.
        managed: directories of the node that are not for MPS.
        gpus: of the node, without which a config is not held against them.
        is_node: there is a kubelet's directory on this machine.
    """
    file = KeptConfig(state_dir)
    kept = _kept(file)
    if isinstance(kept, Finding):
        return StoppedConfig((kept,))
    present = _present(named, kept if isinstance(kept, ConfigText) else None)
    damaged = (_damaged(kept),) if isinstance(kept, ConfigError) else ()
    if present is None:
        return StoppedConfig((*damaged, *_nothing_named(kept, state_dir, is_node)))

    def check_node(config: AgentConfig) -> None:
        check_mps_root(config.mps_root, config.places, managed)

    validate = f"check it with: vgpuctl config validate {present.place}"
    try:
        parse = partial(parse_text, check_node=check_node)
        first = Candidates(present, kept, parse, file.record).fit(gpus)
    except VgpuError as error:
        message = f"{error.message}; the agent does not start with it"
        if kept is None:
            message += f", and {state_dir / FILE} has no earlier config"
        return StoppedConfig((*damaged, fail(_CHECK, message, _hint(error) + validate)))
    if first.problem is not None:
        message = (
            f"{first.problem.message}; the agent would start with the config that was accepted "
            f"before, from {state_dir / FILE}"
        )
        return StoppedConfig((fail(_CHECK, message, _hint(first.problem) + validate),), first)
    told = ok(_CHECK, f"{present.place} is good; the agent would start with it")
    return StoppedConfig((*damaged, told), first)


def kept_config(state_dir: Path) -> list[Finding]:
    """Tells of a kept config that is damaged, while the agent runs."""
    kept = _kept(KeptConfig(state_dir))
    return [_damaged(kept)] if isinstance(kept, ConfigError) else []


def mig(first: FirstConfig) -> list[Finding]:
    """Tells which GPUs are not cut as the config says."""
    return [
        warn(
            "mig",
            f"GPU {each.gpu.uuid} is not cut as the config says: {each}",
            f"run vgpuctl mig apply {first.present.place}, or change its mig entries",
        )
        for each in mig_differences(first.config.mig_layouts, first.known.here)
    ]


def _kept(file: KeptConfig) -> ConfigText | ConfigError | Finding | None:
    try:
        file.path.open("rb").close()
    except PermissionError:
        return warn(_KEPT, f"{file.path} may not be read by this user", AS_ROOT)
    except OSError:
        pass  # said below, or there is none
    try:
        return file.load()
    except ConfigError as error:
        return error


def _present(named: Path | None, kept: ConfigText | None) -> ConfigText | None:
    """Returns the present config, None where nobody tells where it is."""
    path = named or (Path(kept.place) if kept and kept.place else None)
    if path is None or (named is None and not path.exists()):
        return None  # the path of the agent's own container, mostly
    if kept is not None and kept.name and path.is_dir():
        path /= kept.name  # the one that the node's label chose last
    return ConfigSource(path).read()


def _nothing_named(
    kept: ConfigText | ConfigError | None, state_dir: Path, is_node: bool
) -> list[Finding]:
    fix = "name it with --config FILE; the agent's own words: kubectl -n vgpu-system logs -p POD"
    if isinstance(kept, ConfigText):
        return [
            warn(
                _CHECK,
                f"the config that was accepted last, from {kept.place}, is kept in "
                f"{state_dir / FILE}; the present one cannot be seen here",
                fix,
            )
        ]
    if is_node and kept is None:
        return [warn(_CHECK, f"no agent has accepted a config yet ({state_dir / FILE})", fix)]
    return []


def _hint(error: VgpuError) -> str:
    return f"{error.hint}; " if error.hint else ""


def _damaged(error: ConfigError) -> Finding:
    return warn(
        _KEPT,
        f"{error.message}, so an agent that starts next to a bad config does not start",
        "restart the agent while the config is good: it writes the file again",
    )
