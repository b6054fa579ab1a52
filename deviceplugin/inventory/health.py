"""Which GPUs are healthy, by what NVML says of them. Pure: moments come from the caller.

A GPU is unhealthy while NVML does not answer for it or asks for a recovery, and for a while after a
critical error (XID) that counts (`counted_xids`). Errors that a program makes for itself alone say
nothing about the GPU, so they do not unless somebody asks for it. Nothing is unhealthy for ever: a
GPU that was reset or replugged is offered again without a restart of the agent.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

#: Errors of programs, not of the GPU (NVIDIA's XID catalogue; its device plugin ignores the same):
#: graphics engine exception, MMU fault, reset channel verification error, preemptive cleanup, video
#: processor exception, and a channel that a policy ended.
IGNORED_XIDS = frozenset({13, 31, 43, 45, 68, 109})
#: How long a critical error counts against a GPU that answers all the while.
XID_COUNTS_S = 60.0


@dataclass
class Verdicts:
    """What is known of each GPU; used by one thread."""

    _problems: dict[str, str] = field(default_factory=dict)
    _xids: dict[str, tuple[int, float]] = field(default_factory=dict)

    def note_answer(self, uuid: str, problem: str) -> None:
        """Notes how NVML answered for a GPU; an empty problem is none."""
        if problem:
            self._problems[uuid] = problem
        elif self._problems.pop(uuid, None):
            self._xids.pop(uuid, None)  # it went and came back: reset

    def has_problem(self, uuid: str) -> bool:
        """Returns whether NVML's last answer for a GPU told of a problem."""
        return uuid in self._problems

    def note_xid(self, uuid: str, xid: int, now_s: float) -> None:
        """Notes a critical error that counts (`counted_xids`)."""
        self._xids[uuid] = xid, now_s

    def unhealthy(self, now_s: float) -> Mapping[str, str]:
        """Returns why each unhealthy GPU is unhealthy, by UUID."""
        found = {
            uuid: f"XID {xid} was reported"
            for uuid, (xid, at_s) in self._xids.items()
            if now_s - at_s < XID_COUNTS_S
        }
        return MappingProxyType(found | self._problems)
