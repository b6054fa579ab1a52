"""What the agent is started with, as its command line says it."""

from dataclasses import dataclass, field
from pathlib import Path

from deviceplugin.config.chosen import Selection
from deviceplugin.config.mps_root import check_mps_root
from deviceplugin.model.agent_config import AgentConfig, SaidFlag


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What the agent is started with.

    Attributes:
        config: a config file, or a directory of named ones.
        metrics_address: HOST:PORT, of what everybody may ask.
        node_name: of the Node, for its label, Events and log lines.
        spawn_mps: whether to start the MPS daemons where nobody runs them.
        watch_health: whether NVML knows the GPUs of the inventory and is asked how they are, and
            what runs on them.
        host_root: where the agent sees the node's root; empty: where that is known to be.
        said: flags of command line and environment, which count more than the config file's.
        selection: which config of a directory is used.
        publish: whether schedulers are told what the node has, by a Lease.
        pages_address: HOST:PORT, of the pages that tell of tenants; empty: nowhere.
    """

    config: Path
    kubelet_dir: Path
    state_dir: Path
    run_dir: Path
    metrics_address: str
    node_name: str
    spawn_mps: bool = True
    watch_health: bool = False
    host_root: str = ""
    said: tuple[SaidFlag, ...] = ()
    selection: Selection = field(default_factory=Selection)
    publish: bool = True
    pages_address: str = ""

    def check_node(self, config: AgentConfig) -> None:
        """Holds a config against the directories of this node.

        Raises:
            ConfigError: it has MPS daemons keep their files where others keep theirs.
        """
        managed = (self.run_dir, self.state_dir, self.kubelet_dir)
        check_mps_root(config.mps_root, config.places, managed)
