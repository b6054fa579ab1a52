"""What somebody who only has kubectl must be told: the agent's reasons for Kubernetes Events.

A `Notice` is made where the thing happens, with its text, and goes along with the log line that
says the same (`log.event`). Nothing is ever read back from a log line. Pure: `kube` sends them.
"""

from dataclasses import dataclass
from enum import Enum

from .allocations import Owner


class EventReason(Enum):
    """Why there is an Event; the value is what Kubernetes shows.

    Attributes:
        is_warning: whether somebody has to do something about it, or has lost something.
    """

    ALLOCATION_REFUSED = "AllocationRefused", True
    CONTAINER_START_REFUSED = "ContainerStartRefused", True
    LIMITS_CHANGED = "LimitsChanged", False
    LIMITS_KEPT_BUSY = "LimitsKeptBusy", True
    RAISE_REFUSED = "RaiseRefused", True
    CONFIG_REJECTED = "ConfigRejected", True
    CONFIG_PART_SKIPPED = "ConfigPartSkipped", True
    GPU_DRAINING = "GpuDraining", False
    GPU_SHARING_CHANGED = "GpuSharingChanged", False
    GPU_WITHHELD = "GpuWithheld", True
    GPU_UNHEALTHY = "GpuUnhealthy", True
    GPU_HEALTHY = "GpuHealthy", False
    DRIVER_UNAVAILABLE = "DriverUnavailable", True
    DRIVER_AVAILABLE = "DriverAvailable", False
    DRIVER_REPLACED = "DriverReplaced", True
    MPS_CLIENT_FAULT = "MpsClientFault", True
    MPS_SERVER_ENDED = "MpsServerEnded", True
    MPS_SETTINGS_RESTORED = "MpsSettingsRestored", True
    MPS_UNAVAILABLE = "MpsUnavailable", True
    POD_RESOURCES_UNAVAILABLE = "PodResourcesUnavailable", True
    POD_RESOURCES_AVAILABLE = "PodResourcesAvailable", False
    UNACCOUNTED_MEMORY = "UnaccountedMemory", True
    UNACCOUNTED_MEMORY_GONE = "UnaccountedMemoryGone", False
    USAGE_RESTORED = "UsageRestored", True
    USAGE_DAMAGED = "UsageDamaged", True
    GPU_TIME_FORGED = "GpuTimeForged", True
    SHIM_BYPASSED = "ShimBypassed", True
    BYPASSING_PROCESS_KILLED = "BypassingProcessKilled", True
    FOREIGN_DEVICE_PLUGIN = "ForeignDevicePlugin", True
    FOREIGN_GPU_PROCESS = "ForeignGpuProcess", True
    PROCESS_WATCH_UNAVAILABLE = "ProcessWatchUnavailable", True
    HOST_NOT_CLEANED = "HostNotCleaned", True

    is_warning: bool

    def __new__(cls, reason: str, is_warning: bool) -> "EventReason":
        """Makes the value the reason alone."""
        member = object.__new__(cls)
        member._value_ = reason
        member.is_warning = is_warning
        return member


@dataclass(frozen=True, slots=True)
class ThisNode:
    """The Node that the agent runs on; only the sender of Events needs its name."""


THIS_NODE = ThisNode()


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to tell; equal ones are counted up.

    Attributes:
        subject: whom it concerns: the Node, or a container (its pod gets the Event).
    """

    reason: EventReason
    text: str
    subject: ThisNode | Owner


def node_notice(reason: EventReason, text: str) -> Notice:
    """Returns what concerns the whole node, or nobody in particular."""
    return Notice(reason, text, THIS_NODE)


def container_notice(reason: EventReason, text: str, owner: Owner | None) -> Notice | None:
    """Returns what concerns one container.

    While podresources has not told whose a container is, the Node gets its warnings; good news can
    wait, so there is nothing to tell then.
    """
    if owner is not None:
        return Notice(reason, text, owner)
    return node_notice(reason, text) if reason.is_warning else None
