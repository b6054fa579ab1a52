"""Whether NVML's pids mean anything here: they do not without ``hostPID: true``.

NVML lists processes of the host. In a PID namespace of its own an agent finds none of them in
``/proc``, and some drivers list none at all there. Either is only judged after `_LOOKS` looks in a
row, since a process that has just ended is listed for a moment, too; and never in the host's own
namespace, where a pid that is not there is of a process that has ended. Used by one thread.

`sees_node_pids` tells it without a process on a GPU, from what a pod's own first process is.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from libvgpu.errors import RegionError
from libvgpu.ledger_view import read_ledger
from libvgpu.limits import ContainerLimits

_LOOKS = 5
_MEND = "set hostPID: true in the agent's pod"
_SHOWN = 5
#: What the kernel calls the first PID namespace (PROC_PID_INIT_INO).
_FIRST_NAMESPACE = 0xEFFFFFFC


def has_own_pid_namespace() -> bool:
    """Returns whether this process is in another PID namespace than the host's first."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino != _FIRST_NAMESPACE
    except OSError:
        return True


def sees_node_pids(environ: Mapping[str, str], proc: Path = Path("/proc")) -> bool:
    """Returns whether this process has the node's pids: in no pod, or with ``hostPID: true``.

    Without it the pod's first process stands in the cgroup of this very container, and with it the
    node's does not. What cannot be read counts as seen.

    Args:
        environ: of this process; the kubelet gives every container of a pod ``KUBERNETES_*``.
    """
    if "KUBERNETES_SERVICE_HOST" not in environ:
        return True
    try:
        first, own = (proc / "1/cgroup").read_text(), (proc / "self/cgroup").read_text()
    except OSError:
        return True
    return first != own


class PidVisibility:
    """Judges check by check."""

    def __init__(self, is_possible: bool) -> None:
        """Begins as seeing.

        Args:
            is_possible: this process is in a PID namespace of its own.
        """
        self.is_possible = is_possible
        self._doubts = 0
        self._next = 0

    def judge(
        self,
        listed: Collection[int],
        known: Collection[int],
        slices: Sequence[tuple[Path, ContainerLimits]],
    ) -> str:
        """Returns why nothing can be seen, as a sentence; empty where something can.

        Args:
            listed: pids that NVML names.
            known: those of them that ``/proc`` has.
            slices: the files of the allocations, one of which is asked at each check whether its
                processes hold memory that NVML does not show.
        """
        if known or not self.is_possible:
            self._doubts = 0
            return ""
        if listed or self._holds_unseen(slices):
            self._doubts += 1
        elif not slices:
            self._doubts = 0
        if self._doubts < _LOOKS:
            return ""
        if listed:
            shown = ", ".join(map(str, sorted(listed)[:_SHOWN]))
            return f"NVML lists processes that /proc does not know (pid {shown}); {_MEND}"
        return f"NVML lists no process, though containers hold GPU memory; {_MEND}"

    def _holds_unseen(self, slices: Sequence[tuple[Path, ContainerLimits]]) -> bool:
        if not slices:
            return False
        self._next = (self._next + 1) % len(slices)
        directory, _ = slices[self._next]
        try:
            ledger = read_ledger(directory)
        except RegionError:
            return False
        return bool(ledger.processes) and any(ledger.used_bytes)
