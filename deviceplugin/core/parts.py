"""What the parts of the core have in common: whom they ask, and what they keep together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from deviceplugin import runtime
from deviceplugin.policy.pairing.podresources_listing import Listed
from deviceplugin.recovery.kubelet_checkpoint import CheckpointReading
from deviceplugin.store.node_state import NodeState
from deviceplugin.store.slice_files import SliceStore

from .enforcement import Enforcement, LabelsOf, no_labels
from .pod_knowledge import NoPods, PodsOfNode

Lister = Callable[[], Sequence[Listed]]


def no_checkpoint() -> CheckpointReading:
    """Reads a kubelet's checkpoint in which nothing stands."""
    return CheckpointReading(())


def random_id() -> str:
    """Returns an id that no other allocation has."""
    return runtime.random_hex(6)


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the agent learns what it cannot know itself.

    Attributes:
        list_podresources: asks the kubelet's podresources; raises VgpuError where it cannot.
        read_checkpoint: reads the kubelet's checkpoint.
        labels: tells the labels of an allocation's pod, None where nobody knows them.
        clock: seconds, monotonic: all windows of time are of it, so that setting the wall clock
            neither joins strangers nor splits a pair.
        sleep: lets so many seconds of that clock pass.
        wall_clock: seconds since the epoch, for what is kept and shown.
        new_id: names a new allocation.
        pods: tells what the pods of this node ask for.
        node: its name, empty where it is not known.
    """

    list_podresources: Lister
    read_checkpoint: Callable[[], CheckpointReading] = no_checkpoint
    labels: LabelsOf = no_labels
    clock: Callable[[], float] = runtime.monotonic
    sleep: Callable[[float], None] = runtime.sleep
    wall_clock: Callable[[], float] = runtime.epoch
    new_id: Callable[[], str] = random_id
    pods: PodsOfNode = field(default_factory=NoPods)
    node: str = ""


@dataclass(frozen=True, slots=True)
class Allocations:
    """What the agent keeps of the node's allocations.

    Attributes:
        state: the book, and the lock under which all three are used.
        store: the containers' files.
        enforcement: the limits in force.
    """

    state: NodeState
    store: SliceStore
    enforcement: Enforcement
