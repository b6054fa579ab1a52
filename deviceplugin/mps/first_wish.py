"""Which GPUs are under MPS before the agent of this run directory has said anything.

That is so after a reboot, and on a fresh node whose runner starts before its agent. The runner then
decides as an agent would that starts: by the config file, or where that is bad by the config that
the agent last accepted. Which of several named configs a node uses the agent alone decides, as it
follows the node's label, so of a directory only the kept config counts; while there is none,
nothing is under MPS. What the agent says later takes the place of all this. Reads only.
"""

import logging
from functools import partial
from pathlib import Path

from deviceplugin.config.mps_root import check_mps_root
from deviceplugin.config.source import ConfigSource, parse_text
from deviceplugin.inventory.nvml import Inventory
from deviceplugin.log import event
from deviceplugin.model.agent_config import AgentConfig
from deviceplugin.policy.devices.first_config import Candidates
from deviceplugin.policy.devices.layout import absent_devices
from deviceplugin.store.kept_config import KeptConfig
from libvgpu.errors import ConfigError, MpsError

from .state_files import Wanted, read_wanted


def first_wish(
    config: Path, run_dir: Path, state_dir: Path, inventory: Inventory, root: str | None = None
) -> Wanted:
    """Returns what the agent last said, else what the config says.

    Args:
        config: a config file, or a directory of named ones.
        state_dir: the agent's.
        root: of the daemons' files, where that is not for the config to say.

    Raises:
        VgpuError: the config file is bad, and none is kept that can be used.
    """
    try:
        wanted = read_wanted(run_dir)
    except MpsError as error:
        event(logging.WARNING, "the config decides", reason=error.message)
        wanted = None
    if wanted is not None:
        return wanted

    def check_node(config: AgentConfig) -> None:
        if root is None:
            check_mps_root(config.mps_root, config.places, (run_dir, state_dir))

    parse = partial(parse_text, check_node=check_node)
    source, file = ConfigSource(config), KeptConfig(state_dir)
    kept = file.found()
    if not source.has_names:
        candidates = Candidates(source.read(), kept, parse, file.record)
        return _by_config(candidates, inventory, root)
    if kept is None or isinstance(kept, ConfigError):
        return _waits("it has not yet chosen one of the named configs")
    try:
        candidates = Candidates(kept, None, parse, file.record)
        return _by_config(candidates, inventory, root)
    except ConfigError as error:
        return _waits(error.message)


def _waits(reason: str) -> Wanted:
    event(logging.INFO, "no GPU is under MPS until the agent has said which", reason=reason)
    return Wanted("", {})


def _by_config(candidates: Candidates, inventory: Inventory, root: str | None) -> Wanted:
    first = candidates.fit(inventory.gpus())
    if first.problem is not None:
        reason = first.problem.message
        event(logging.ERROR, "the config is bad, so the kept one is used", reason=reason)
    left_out = absent_devices(first.config, first.known.here, first.known.lost)[1]
    if left_out is not None:
        event(logging.ERROR, "a part of the config is skipped", reason=left_out.message)
    uuids = [shared.gpu.uuid for shared in first.layout.served_by_mps()]
    if not uuids:
        event(logging.INFO, "no GPU is shared through MPS, nothing to run")
    return Wanted("", dict.fromkeys(uuids, True), first.config.mps_root if root is None else root)
