"""How the config has the node labelled."""

from dataclasses import dataclass
from enum import StrEnum

#: Where NFD and the machine keep them, as NVIDIA's GPU Feature Discovery has it.
DEFAULT_OUTPUT_FILE = "/etc/kubernetes/node-feature-discovery/features.d/gfd"
DEFAULT_MACHINE_TYPE_FILE = "/sys/class/dmi/id/product_name"


class LabelTarget(StrEnum):
    """Where labels are written to."""

    FILE = "file"
    NODE_FEATURE = "node-feature"
    NODE = "node"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class LabelSettings:
    """How the node is labelled.

    Attributes:
        target: where labels are written to.
        is_named: the config names the target, so one that is missing is a fault.
        output_file: of the feature file; empty for the agent's stdout.
        machine_type_file: whose content is the type of the machine; empty where nobody asks.
        interval_s: after which labels are written again although nothing has changed.
        oneshot: they are written once, and stay when the agent ends.
        timestamp: they say since when they are written.
        mig_strategy: ``none``, ``single`` or ``mixed``.
    """

    target: LabelTarget = LabelTarget.FILE
    is_named: bool = False
    output_file: str = DEFAULT_OUTPUT_FILE
    machine_type_file: str = DEFAULT_MACHINE_TYPE_FILE
    interval_s: float = 60.0
    oneshot: bool = False
    timestamp: bool = True
    mig_strategy: str = "none"
