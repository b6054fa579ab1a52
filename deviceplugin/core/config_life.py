"""The parts that know the agent's config from one start to the next, made together.

Where it comes from (a file, or the named config that the node's label chooses), what was last
accepted, and what the two give at a start. `agent.run` opens it before it has the node's lock, so
nothing is written here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from deviceplugin.config.chosen import Selection
from deviceplugin.config.reload import ConfigWatch
from deviceplugin.config.source import ConfigSource, parse_text
from deviceplugin.inventory.gpu_watch import Listed
from deviceplugin.kube.api_client import ApiServer
from deviceplugin.kube.node_label import NodeLabel
from deviceplugin.model.agent_config import AgentConfig, SaidFlag
from deviceplugin.model.gpus import Inventory
from deviceplugin.policy.devices.first_config import Candidates, FirstConfig
from deviceplugin.store.kept_config import KeptConfig

from .gpu_follower import first_listing, listed_gpus


@dataclass(frozen=True, slots=True)
class ConfigLife:
    """What an agent starts with, and what it follows.

    Attributes:
        listed: the GPUs of the node, or why they cannot be listed yet.
    """

    source: ConfigSource
    label: NodeLabel
    kept: KeptConfig
    listed: Listed
    first: FirstConfig

    def watch(self) -> ConfigWatch:
        """Returns what follows the config from here on; a bad one at the start is said now."""
        first = self.first
        return ConfigWatch(self.source, first.present, first.config, first.kept, first.problem)


def open_config(
    path: Path,
    selection: Selection,
    said: tuple[SaidFlag, ...],
    api: ApiServer | None,
    node_name: str,
    state_dir: Path,
    inventory: Inventory,
    check_node: Callable[[AgentConfig], None],
) -> ConfigLife:
    """Reads the config that is to be in force.

    Args:
        path: a config file, or a directory of named ones.
        said: flags of command line and environment, which count more than the config's.
        api: None where there is none.
        inventory: of the node; asked only once there is a config that says something.
        check_node: see `parse_text`.

    Raises:
        ConfigError: it is bad, and so is what was kept, if anything was.
        InventoryError: the GPUs cannot be listed, and the config does not say to wait.
    """
    label = NodeLabel(api, node_name, selection.node_label, state_dir)
    source = ConfigSource(path, selection, label.value)
    kept = KeptConfig(state_dir)
    found = kept.found()
    parse = partial(parse_text, said=said, check_node=check_node)
    candidates = Candidates(source.read(), found, parse, kept.record)
    listed = first_listing(inventory, candidates.fail_on_init_error)
    return ConfigLife(source, label, kept, listed, candidates.fit(listed_gpus(listed)))
