"""`kubectl vgpu doctor`: whether the agents of the nodes can hand out and hold slices.

It judges what each agent says of itself, as `vgpuctl doctor` does there: config, resources, GPUs,
the watch, and how containers get their GPUs. What only files and sockets of a node tell is for
`vgpuctl doctor` on that node. Exit status 1 where something failed, or a node does not answer.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict

import click

from deviceplugin.pages.state import AgentReport

from ...doctor import agent_checks, injection_check, pid_checks, published_check
from ...doctor.finding import FAIL, OK, Finding, fail
from ...examples import examples
from ...options import output_option
from ...render import OUTPUT_VERSION, printable
from ..nodes import NodeAnswer, Place, nodes_at
from ..options import place_options

_LEVEL_WIDTH, _CHECK_WIDTH = 5, 14


def findings(answer: NodeAnswer[AgentReport], now: float) -> list[Finding]:
    """Returns what is found of one node.

    Args:
        now: seconds since the epoch.
    """
    report = answer.page
    if report is None:
        fix = "see the pod's events and log: kubectl describe pod, kubectl logs"
        return [fail("agent", answer.problem, fix)]
    return [
        agent_checks.agent(report, now, is_node=True),
        *agent_checks.config(report),
        agent_checks.resources(report),
        *agent_checks.podresources(report),
        *agent_checks.pods(report),
        *published_check.published(report),
        *pid_checks.node_pids(report),
        *agent_checks.gpus(report),
        *agent_checks.watch(report),
        *injection_check.injection(report.injection),
        *agent_checks.fault_domains(_mps_clients(report)),
    ]


def _mps_clients(report: AgentReport) -> dict[str, int]:
    """Returns the GPUs under MPS, with how many allocations each has."""
    given = [device.gpu for each in report.allocations for device in each.devices]
    return {uuid: given.count(uuid) for uuid in report.mps_gpus}


@click.command(epilog=examples("kubectl vgpu doctor --problems"))
@place_options
@click.option("--problems", is_flag=True, help="Show only what is not ok.")
@output_option
def doctor(place: Place, problems: bool, output: str) -> int:
    """Check what the agents of the nodes say of themselves."""
    with nodes_at(place) as nodes:
        answers = nodes.reports()
    now = time.time()
    found = [(each.node, one) for each in answers for one in findings(each, now)]
    shown = [(node, one) for node, one in found if not problems or one.level != OK]
    if output == "json":
        rows = [{"version": OUTPUT_VERSION, "node": node, **asdict(one)} for node, one in shown]
        click.echo(json.dumps(rows, indent=2))
    else:
        _show(shown)
    return int(any(one.level == FAIL for _, one in found))


def _show(found: Sequence[tuple[str, Finding]]) -> None:
    width = max((len(node) for node, _ in found), default=0)
    for node, one in found:
        fix = f"; fix: {one.fix}" if one.fix else ""
        line = (
            f"{node:<{width}}  {one.level:<{_LEVEL_WIDTH}} {one.check:<{_CHECK_WIDTH}} "
            f"{one.message}{fix}"
        )
        click.echo(printable(" ".join(line.split("\n"))))
