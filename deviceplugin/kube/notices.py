"""Which log lines become Kubernetes Events, and how often. Pure but for `LogTap`.

The log stays the whole truth; an Event is a copy of those lines that concern a pod or the Node and
that somebody who only has kubectl must see. So nothing else in the agent knows of Events: a handler
on its logger picks the lines by their message. Equal ones within `WINDOW_S` are one Event that is
counted up: it is sent when it first happens, and once more when its window ends, if there were
others. A token bucket bounds what different ones may cost the API server.
"""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from libvgpu.sizes import format_size

WINDOW_S = 60.0
#: So many different ones at once, then so many a second.
BURST, PER_SECOND = 25, 0.5
MOST_TEXT = 1000  # characters; the API server refuses notes above 1024 bytes


@dataclass(frozen=True, slots=True)
class Notice:
    """What is to become an Event; equal ones are counted up.

    Attributes:
        kind: ``Pod`` or ``Node``.
        namespace: of the pod; empty for the Node.
        name: of pod or Node.
        reason: in CamelCase, as Events have it.
    """

    kind: str
    namespace: str
    name: str
    reason: str
    text: str
    warning: bool


@dataclass(slots=True)
class Record:
    """One Event as the API server is to know it.

    Attributes:
        name: of the Event object.
        uid: of the pod, once it was looked up; empty where it is not known.
        told: how often the API server was told of it.
    """

    notice: Notice
    name: str
    first_at: float
    last_at: float
    count: int = 1
    told: int = 0
    uid: str | None = None


def notice_of(message: str, fields: Mapping[str, Any], node: str) -> Notice | None:
    """Returns what a log line means for pod or Node, None for those that stay in the log.

    Args:
        message: of the line.
        fields: its values.
        node: the Node's name.
    """
    told = _TOLD.get(message)
    if told is None:
        return None
    reason, warning, words, of_pod = told
    text = words(fields)
    if text is None:
        return None
    namespace, slash, rest = str(fields.get("owner", "")).partition("/")
    pod, _, container = rest.partition("/")
    if of_pod and slash:
        text = f"container {container}: {text}"[:MOST_TEXT]
        return Notice("Pod", namespace, pod, reason, text, warning)
    if of_pod and not warning:
        return None  # good news for a pod nobody knows yet
    return Notice("Node", "", node, reason, text[:MOST_TEXT], warning)


def _refusal(fields: Mapping[str, Any]) -> str | None:
    # A refused start has a line of its own, which knows whose it is.
    return None if fields.get("method") == "PreStartContainer" else str(fields["reason"])


def _reason(fields: Mapping[str, Any]) -> str:
    return str(fields["reason"])


def _gpu(fields: Mapping[str, Any]) -> str:
    gpu, why = fields["gpu"], fields.get("reason")
    return (
        f"GPU {gpu} is not well, so nothing of it is offered: {why}"
        if why
        else f"GPU {gpu} is well again"
    )


def _drains(fields: Mapping[str, Any]) -> str:
    return (
        f"GPU {fields['gpu']} is {fields['now']} until {fields['slices']} slices have ended, then "
        f"{fields['then']}"
    )


def _shared(fields: Mapping[str, Any]) -> str:
    return f"GPU {fields['gpu']} is {fields['now']}"


def _change(fields: Mapping[str, Any]) -> str:
    old, _, new = str(fields["memory_bytes"]).partition("->")
    memory = f"{format_size(int(old))} to {format_size(int(new))}"
    core = "% to ".join(str(fields["core_percent"]).split("->")) + "%"
    mode, _, new_mode = str(fields.get("compute", "->")).partition("->")
    held = f" held {mode} to {new_mode}" if mode != new_mode else ""
    text = f"GPU memory {memory}, compute {core}{held}, by {fields.get('cause', 'the config')}"
    waits = fields.get("pending", "nothing")
    return text if waits == "nothing" else f"{text}; when its processes start again: {waits}"


def _beside(fields: Mapping[str, Any]) -> str:
    old, _, new = str(fields["bytes"]).partition("->")
    return (
        f"its processes hold {format_size(int(new))} of GPU {fields['gpu']} beside its ledger "
        f"({format_size(int(old))} before); this is charged to its slice"
    )


def _beside_no_more(fields: Mapping[str, Any]) -> str:
    return f"its processes hold nothing of GPU {fields['gpu']} beside its ledger any more"


def _bypass(fields: Mapping[str, Any]) -> str:
    return f"{_process(fields)} without the shim, beside its slice"


def _ended(fields: Mapping[str, Any]) -> str:
    return f"{_process(fields)} without the shim, beside its slice, and was ended"


def _foreign(fields: Mapping[str, Any]) -> str:
    return f"{_process(fields)}, and belongs to no container with a slice"


def _process(fields: Mapping[str, Any]) -> str:
    held = fields["bytes"]
    size = "memory" if held == "unknown" else format_size(int(held))
    return f"process {fields['pid']} ({fields['command']}) uses {size} of GPU {fields['gpu']}"


#: message -> reason, whether it is a warning, its text, whether it is of a pod.
_TOLD: Mapping[str, tuple[str, bool, Callable[[Mapping[str, Any]], str | None], bool]] = {
    "refused": ("SliceRefused", True, _refusal, False),
    "start refused": ("SliceStartRefused", True, _reason, True),
    "limits changed": ("SliceLimitsChanged", False, _change, True),
    "raise refused": ("SliceRaiseRefused", True, _reason, True),
    "config rejected, the last good one stays": ("ConfigRejected", True, _reason, False),
    "a part of the config is left out": ("ConfigLeftOut", True, _reason, False),
    "GPU drains: its sharing changes when its slices have ended": (
        "GpuDrains",
        False,
        _drains,
        False,
    ),
    "sharing in force": ("GpuSharing", False, _shared, False),
    "MPS ended, its clients lost their work": ("MpsEnded", True, _reason, True),
    "MPS settings were changed and put back": ("MpsSettingsRestored", True, _reason, False),
    "MPS of a GPU cannot be served": ("MpsUnavailable", True, _reason, False),
    "GPU unwell: nothing of it is offered": ("GpuUnwell", True, _gpu, False),
    "memory beside the ledger": ("MemoryBesideSlice", True, _beside, True),
    "memory beside the ledger is gone": ("MemoryBesideSliceGone", False, _beside_no_more, True),
    "process bypasses its slice": ("SliceBypassed", True, _bypass, True),
    "process ended: it bypassed its slice": ("BypassingProcessEnded", True, _ended, True),
    "process of no allocation uses a GPU": ("ForeignGpuProcess", True, _foreign, False),
    "the watch beside the shim sees nothing": ("WatchBlind", True, _reason, False),
    "GPU well again": ("GpuWellAgain", False, _gpu, False),
}


class Aggregator:
    """Counts equal notices within a window; used by one thread."""

    def __init__(self, burst: int = BURST, per_second: float = PER_SECOND) -> None:
        """Knows nothing yet."""
        self._open: dict[Notice, Record] = {}
        self._burst, self._per_second = burst, per_second
        self._tokens, self._filled_at = float(burst), 0.0
        self.dropped = 0

    def add(self, notice: Notice, now: float) -> Record | None:
        """Returns the Event to tell of now; None where it is counted up, or dropped as too many."""
        record = self._open.get(notice)
        if record is not None:
            record.count, record.last_at = record.count + 1, now
            return None
        self._tokens = min(
            self._burst, self._tokens + max(0.0, now - self._filled_at) * self._per_second
        )
        self._filled_at = now
        if self._tokens < 1:
            self.dropped += 1
            return None
        self._tokens -= 1
        record = Record(notice, f"vgpu.{os.urandom(8).hex()}", now, now)
        self._open[notice] = record
        return record

    def due(self, now: float) -> list[Record]:
        """Closes the windows that are over; returns those Events that were counted up in them."""
        over = [r for r in self._open.values() if now >= r.first_at + WINDOW_S]
        for record in over:
            del self._open[record.notice]
        return [record for record in over if record.count > 1]

    def next_due(self) -> float | None:
        """Returns when the first window ends, None where none is open."""
        return min((r.first_at + WINDOW_S for r in self._open.values()), default=None)


class LogTap(logging.Handler):
    """Hands the lines that are to become Events to ``put``, which must not block."""

    def __init__(self, node: str, put: Callable[[Notice], None]) -> None:
        super().__init__(logging.INFO)
        self._node, self._put = node, put

    def emit(self, record: logging.LogRecord) -> None:
        """Takes one line."""
        try:
            fields = getattr(record, "fields", {})
            notice = notice_of(record.getMessage(), fields, self._node)
        except Exception:  # a line of an unforeseen form must not fail the call that wrote it
            self.handleError(record)
            return
        if notice is not None:
            self._put(notice)
