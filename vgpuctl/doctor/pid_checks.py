"""Checks whether the agent can tell whose a process is: by the node's pids and by cgroups. Pure."""

from collections.abc import Sequence

from deviceplugin.pages.state import AgentReport

from .finding import Finding, ok, warn
from .slice_processes import SliceProcess

_PIDS, _CGROUPS = "pids", "cgroups"
V1, V2, HYBRID = "v1", "v2", "v1 with a v2 tree"


def node_pids(report: AgentReport) -> list[Finding]:
    """Tells of an agent in a PID namespace of its own."""
    if report.agent.sees_node_pids:
        return []
    return [
        warn(
            _PIDS,
            "the agent has pids of its own and not the node's, so it cannot tell whose processes "
            "use a GPU: what avoids the shim is neither seen nor charged",
            "set hostPID: true in the agent's pod (the chart does): kubectl -n vgpu-system patch "
            "daemonset vgpu-agent --type merge "
            '-p \'{"spec":{"template":{"spec":{"hostPID":true}}}}\'',
        )
    ]


def layout(mountinfo: str) -> str:
    """Returns which cgroups a node has, empty where none are mounted.

    Args:
        mountinfo: text of a process's file of that name.
    """
    kinds = {line.partition(" - ")[2].split(" ")[0] for line in mountinfo.split("\n")}
    if "cgroup" in kinds:
        return HYBRID if "cgroup2" in kinds else V1
    return V2 if "cgroup2" in kinds else ""


def cgroups(kind: str, processes: Sequence[SliceProcess]) -> list[Finding]:
    """Tells whether the agent reads the pods' cgroups.

    Args:
        kind: as `layout` gives it.
    """
    unread = [each for each in processes if not each.has_pod_cgroup]
    named = f"cgroups {kind}" if kind else "cgroups"
    if not unread:
        if not processes or not kind:
            return []
        return [ok(_CGROUPS, f"{named}: those of {len(processes)} processes name their pod")]
    first = unread[0]
    return [
        warn(
            _CGROUPS,
            f"{named}: that of process {first.pid} ({first.command}) of {first.owner}, "
            f"{first.cgroup or '/'}, names no pod in a form that the agent reads "
            f"({len(unread)} of {len(processes)} processes); such processes are told by their "
            "mounts alone",
            "see that the kubelet's cgroupDriver is cgroupfs or systemd and the same as the "
            "runtime's; nothing where containers do not come from a kubelet",
        )
    ]
