"""Checks of kubelet and node agent. Pure."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from deviceplugin.pages.state import AgentReport, ReportedProcess
from libvgpu.errors import VgpuError
from libvgpu.sizes import format_size

from ..agent_client import AgentUnreachable
from .finding import RESET_GPU, Finding, fail, ok, warn
from .node_checks import AS_ROOT


def kubelet_socket(check: str, path: Path, problem: OSError | None, is_node: bool) -> Finding:
    """Checks one of the kubelet's sockets.

    Args:
        check: what it is called here.
        problem: why it could not be connected to, None where it could.
        is_node: there is a kubelet's directory on this machine.
    """
    if problem is None:
        return ok(check, f"{path} answers")
    if isinstance(problem, PermissionError):
        return warn(check, f"{path} may not be opened by this user", AS_ROOT)
    if not is_node:
        return warn(
            check,
            f"{path} is not there: no kubelet on this machine",
            "not needed for vgpuctl run; a kubelet elsewhere is named with --kubelet-dir",
        )
    return fail(
        check,
        f"{path} does not answer: {problem.strerror or problem}",
        "start the kubelet (systemctl status kubelet), or name its directory with --kubelet-dir",
    )


def agent(report: AgentReport | VgpuError, now: float, is_node: bool) -> Finding:
    """Checks that the agent answers and its loop turns.

    Args:
        report: its answer, or why there is none.
        now: seconds since the epoch.
        is_node: there is a kubelet's directory on this machine.
    """
    if isinstance(report, VgpuError):
        fix = report.hint or "read its log"
        if isinstance(report, AgentUnreachable):
            fix = "start it (python -m deviceplugin), or name its directory with --run-dir"
        if isinstance(report, AgentUnreachable) and (report.denied or not is_node):
            return warn(
                "agent",
                report.message,
                AS_ROOT
                if report.denied
                else "not needed for vgpuctl run; on a node, start it: python -m deviceplugin",
            )
        return fail("agent", report.message, fix)
    if report.loop_problem:
        return fail("agent", report.loop_problem, "read its log, then restart it")
    hours = max(0.0, now - report.agent.started_at) / 3600
    return ok(
        "agent",
        f"version {report.agent.version} of node {report.agent.node} answers "
        f"(pid {report.agent.pid}, up {hours:.1f} h)",
    )


def config(report: AgentReport) -> list[Finding]:
    """Checks that the present content of the config is in force, and the label that chooses it."""
    told = report.config
    named = f"{told.shown}; " if told.shown else ""
    found = []
    if told.error is None:
        where = f"({told.digest[:12]}, {told.rules} limits rules)"
        found.append(ok("config", f"{named}{told.path} is in force {where}"))
    else:
        fix = f"{told.hint}; " if told.hint else ""
        holds = "the last good one stays"
        if told.in_part:
            holds = "the rest of it is"
        elif told.is_kept:
            holds = "the one kept from before the agent's start is"
        found.append(
            fail(
                "config",
                f"{told.error}; {holds} in force ({named}{told.digest[:12]})",
                f"{fix}check it with: vgpuctl config validate {told.path}",
            )
        )
    if told.label_problem:
        found.append(
            warn(
                "config",
                f"the node's config label cannot be read: {told.label_problem}; the "
                "last known one counts",
                "see that the agent's service account may get nodes, and that --node-name is right",
            )
        )
    return found


def resources(report: AgentReport) -> Finding:
    """Checks that the kubelet has every resource, and listens."""
    missing = [r.name for r in report.resources if r.registered_at is None]
    if missing:
        return fail(
            "resources",
            f"not registered with the kubelet: {', '.join(missing)}",
            "see that the kubelet runs and look for 'registration' in the agent's log",
        )
    if report.unheard_resources:
        return fail(
            "resources",
            f"registered, but the kubelet does not listen: {', '.join(report.unheard_resources)}",
            "nothing: the agent registers again and again; see the kubelet's log for why it ended "
            "the stream, and whether another plugin registers the same resource",
        )
    if not report.resources:
        return warn(
            "resources",
            "no GPU is offered",
            "see the lines about GPUs below, and `vgpuctl status` for what the node has",
        )
    since = max(r.registered_at for r in report.resources if r.registered_at is not None)
    moment = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(since))
    names = ", ".join(r.name for r in report.resources)
    return ok("resources", f"registered since {moment}: {names}")


def podresources(report: AgentReport) -> list[Finding]:
    """Tells of an agent that podresources does not answer, whatever its socket does here."""
    if report.podresources_problem is None:
        return []
    return [
        fail(
            "podresources",
            f"the agent has no answer: {report.podresources_problem}",
            "see that the kubelet runs and that its pod-resources directory is mounted into the "
            "agent's pod",
        )
    ]


def pods(report: AgentReport) -> list[Finding]:
    """Tells of an agent that does not know what the pods of its node ask for."""
    if not report.pods_problem:
        return []
    return [
        warn(
            "pods",
            f"the agent does not follow the pods of this node: {report.pods_problem}; it chooses "
            "a GPU by the one half that it is asked for first, and packs less densely",
            "see that the agent's service account may list and watch pods",
        )
    ]


_START_DRIVER = "install or start the NVIDIA driver; the agent notices it by itself"


def gpus(report: AgentReport) -> list[Finding]:
    """Tells of each GPU that the agent offers nothing of: it is unhealthy, drains, NVML fails for
    it, or the config does not say how.
    """
    withheld = [
        warn(
            "gpu",
            f"nothing of GPU {uuid} is offered: {why}",
            f"say in {report.config.path} how it is shared, or change its MIG devices",
        )
        for uuid, why in sorted(report.withheld_gpus.items())
    ]
    unmatched = [
        ok("config", f"{entry} is for no GPU of this node") for entry in report.unmatched_entries
    ]
    drains = [
        warn(
            "gpu",
            f"GPU {uuid} drains, so nothing of it is offered: {why}",
            "nothing, or end the pods that hold slices of it (vgpuctl ps names them)",
        )
        for uuid, why in sorted(report.draining_gpus.items())
    ]
    mig = [
        warn(
            "mig",
            f"GPU {uuid} is not cut as the config says: {why}",
            "end what uses it and run vgpuctl mig apply with the config, or change its mig entries",
        )
        for uuid, why in sorted(report.mig_differences.items())
    ]
    failing = [
        f"GPU {uuid} is unhealthy, so nothing of it is offered: {why}"
        for uuid, why in sorted(report.unhealthy_gpus.items())
    ] + [
        f"GPU {gpu} is left out until it works: {why}"
        for gpu, why in sorted(report.left_out_gpus.items())
    ]
    driver = [
        fail("gpu", f"the agent waits for the driver: {problem}", _START_DRIVER)
        for problem in (report.driver_problem,)
        if problem
    ]
    unhealthy = [fail("gpu", said, RESET_GPU) for said in failing]
    return [*withheld, *unmatched, *mig, *drains, *driver, *unhealthy]


def watch(report: AgentReport) -> list[Finding]:
    """Tells of what uses GPUs without the shim, as far as the agent can see it."""
    seen = report.watch
    found = []
    if seen.problem:
        found.append(
            warn(
                "watch",
                f"processes that avoid the shim are not seen: {seen.problem}",
                "the limits hold without it; it needs hostPID: true and NVML",
            )
        )
    for damaged in seen.damaged:
        found.append(
            warn(
                "watch",
                f"{damaged.problem}, in {damaged.owner} (allocation {damaged.allocation})",
                "delete its pod, or have its processes ended (watch: {unaccounted: terminate})",
            )
        )
    for forged in seen.forged:
        found.append(
            warn(
                "watch",
                f"processes of {forged.owner} take more of GPU {forged.gpu} than their share of "
                f"{forged.share_percent} %, and its usage hides it "
                f"(allocation {forged.allocation})",
                "nothing: they wait until the share is kept; see who wrote into the usage file",
            )
        )
    for process in seen.bypassing:
        found.append(
            warn(
                "watch",
                f"{_process(process)} {process.how}, in {process.owner} "
                f"(allocation {process.allocation})",
                "see why its program avoids the shim, or have such processes ended "
                "(watch: {unaccounted: terminate})",
            )
        )
    for process in seen.foreign:
        found.append(
            warn(
                "watch",
                f"{_process(process)} and belongs to no allocation",
                "end it, or take the GPU out of sharing.fractional",
            )
        )
    named = {(each.allocation, each.gpu) for each in seen.bypassing}
    for each in seen.charged:
        if (each.allocation, each.gpu) not in named:  # which of its processes it is, is not told
            found.append(
                warn(
                    "watch",
                    f"processes of {each.owner} hold {format_size(each.memory_bytes)} of GPU "
                    f"{each.gpu} that the shim does not count (allocation {each.allocation})",
                    "nothing: it is charged to their slice; see which program avoids the shim",
                )
            )
    left_out = seen.bypassing_count + seen.foreign_count - len(seen.bypassing) - len(seen.foreign)
    if left_out > 0:
        found.append(warn("watch", f"{left_out} more processes like these", "see the metrics"))
    left_out = sum(
        count - len(shown)
        for count, shown in (
            (seen.damaged_count, seen.damaged),
            (seen.charged_count, seen.charged),
            (seen.forged_count, seen.forged),
        )
    )
    if left_out > 0:
        found.append(warn("watch", f"{left_out} more containers like these", "see the metrics"))
    return found


def _process(each: ReportedProcess) -> str:
    size = "memory" if each.memory_bytes is None else format_size(each.memory_bytes)
    return f"process {each.pid} ({each.command}) uses {size} of GPU {each.gpu}"


def mps_daemons(answers: Sequence[tuple[str, str, str]]) -> list[Finding]:
    """Checks the MPS daemon of each GPU that is under MPS.

    Args:
        answers: GPU, why its daemon does not answer (empty where it does), and where its pipe and
            logs are (empty for the run directory).
    """
    return [
        fail(
            "mps",
            f"the MPS daemon of GPU {uuid} does not answer: {problem}",
            "see that python -m deviceplugin.mps runs; its log is mps/runner.log in the run "
            "directory" + (f", those of the daemon are in {place}/log" if place else ""),
        )
        if problem
        else ok(
            "mps",
            f"the MPS daemon of GPU {uuid} answers"
            + (f"; its pipe and logs are in {place}" if place else ""),
        )
        for uuid, problem, place in answers
    ]


def fault_domains(clients: Mapping[str, int]) -> list[Finding]:
    """Tells which GPUs' tenants share one MPS server, since that was chosen and has its price.

    Args:
        clients: those GPUs, with how many slices are clients now.
    """
    return [
        ok(
            "fault-domain",
            f"GPU {uuid} is one fault domain: its containers are clients of one MPS server "
            f"({count} now), so a fatal fault of one ends the work of all",
        )
        for uuid, count in sorted(clients.items())
    ]
