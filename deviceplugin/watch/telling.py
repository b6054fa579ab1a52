"""What the watch says of its findings: a log line each, with the notice for pod or Node.

No state; called in the watch's thread. When something is said is for the watcher to decide.
"""

import logging

from deviceplugin.log import event
from deviceplugin.model.allocations import Allocation
from deviceplugin.model.notices import EventReason, Notice, container_notice, node_notice
from libvgpu.sizes import format_size

from .report import DamagedUsage, ForgedTime, SeenProcess


def say_charge(allocation: Allocation, uuid: str, before_bytes: int, now_bytes: int) -> None:
    """Says that an allocation is charged otherwise than before for what the shim does not count."""
    if now_bytes:
        reason = EventReason.UNACCOUNTED_MEMORY
        text = (
            f"its processes hold {format_size(now_bytes)} of GPU {uuid} that the shim does not "
            f"count ({format_size(before_bytes)} before); this is charged to its slice"
        )
    else:
        reason = EventReason.UNACCOUNTED_MEMORY_GONE
        text = f"its processes hold no memory of GPU {uuid} any more that the shim does not count"
    event(
        logging.WARNING if now_bytes > before_bytes else logging.INFO,
        "unaccounted GPU memory is " + ("charged" if now_bytes else "gone"),
        notice=container_notice(reason, text, allocation.owner),
        allocation=allocation.allocation_id,
        owner=allocation.owner or "unknown",
        gpu=uuid,
        bytes=f"{before_bytes}->{now_bytes}",
    )


def say_foreign(seen: SeenProcess) -> None:
    """Says that a process of no container with a slice uses a GPU."""
    text = f"{seen.described()}, and belongs to no container with a slice"
    notice = node_notice(EventReason.FOREIGN_GPU_PROCESS, text)
    _say(seen, "process without an allocation uses a GPU", notice)


def say_bypassing(seen: SeenProcess) -> None:
    """Says that a container's process uses a GPU around its slice."""
    text = f"{seen.described()} {seen.how}, so outside its slice"
    notice = container_notice(EventReason.SHIM_BYPASSED, text, seen.owner)
    _say(seen, "process bypasses the shim", notice)


def say_killed(seen: SeenProcess) -> None:
    """Says that such a process was killed."""
    text = f"{seen.described()} {seen.how}, so outside its slice, and was killed"
    notice = container_notice(EventReason.BYPASSING_PROCESS_KILLED, text, seen.owner)
    _say(seen, "process killed: it bypassed the shim", notice)


def say_damaged(found: DamagedUsage) -> None:
    """Says that a container has made its `usage` unreadable."""
    text = (
        f"it {found.what}, so what its processes hold of GPUs is not known; the "
        "file is made again when the container starts again"
    )
    event(
        logging.WARNING,
        "a container's usage file is damaged",
        notice=container_notice(EventReason.USAGE_DAMAGED, text, found.owner),
        allocation=found.allocation_id,
        owner=found.owner or "unknown",
        what=found.what,
    )


def say_forged(found: ForgedTime) -> None:
    """Says that a container takes more of a GPU's time than its books say."""
    text = (
        f"its processes take more of GPU {found.gpu} than their share of {found.share_percent} %, "
        "and its usage file hides it; their launches wait until the share is kept"
    )
    event(
        logging.WARNING,
        "a container takes more GPU time than its usage file says",
        notice=container_notice(EventReason.GPU_TIME_FORGED, text, found.owner),
        allocation=found.allocation_id,
        owner=found.owner or "unknown",
        gpu=found.gpu,
        share_percent=found.share_percent,
    )


def _say(seen: SeenProcess, message: str, notice: Notice | None) -> None:
    owner = seen.owner or "unknown"
    whose = {"allocation": seen.allocation_id, "owner": owner} if seen.allocation_id else {}
    event(
        logging.WARNING,
        message,
        notice=notice,
        **whose,
        gpu=seen.gpu,
        pid=seen.pid,
        command=seen.command,
        bytes="unknown" if seen.memory_bytes is None else seen.memory_bytes,
    )
