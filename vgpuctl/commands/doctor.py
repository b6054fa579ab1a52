"""`vgpuctl doctor`: whether this node can hand out and hold slices, and how to fix what cannot.

One line per finding: ``ok``, ``warn`` (it works, or this user may not see it) or ``fail``, with the
way to fix it. ``-o json`` gives a list of objects (`vgpuctl.output.rows.DoctorRow`).
Exit status: 0 where nothing failed, else 1. It changes nothing, and needs no root to tell what an
ordinary user may see.
"""

import json
from dataclasses import asdict
from pathlib import Path

import click

from ..examples import examples
from ..options import node_dirs_options, output_option
from ..render import OUTPUT_VERSION, printable

_LEVEL_WIDTH, _CHECK_WIDTH = 5, 15


@click.command(
    short_help="Check whether this node can give and hold slices.",
    epilog=examples(
        "vgpuctl doctor | grep -v ^ok",
        "vgpuctl doctor -o json | jq '.[] | select(.level == \"fail\")'",
    ),
)
@click.option(
    "--config",
    envvar=["CONFIG_FILE_SRCDIR", "CONFIG_FILE"],
    type=click.Path(path_type=Path),
    help="The agent's config file or directory, read while the agent is down.  [default: the one "
    "that was accepted last]",
)
@click.option(
    "--host-root",
    envvar="VGPU_HOST_ROOT",
    default="",
    help="Where the node's root is seen.  [default: /proc/1/root in a container]",
)
@node_dirs_options
@output_option
def doctor(
    config: Path | None,
    host_root: str,
    run_dir: Path | None,
    state_dir: Path,
    kubelet_dir: Path,
    output: str,
) -> int:
    """Check driver, kubelet, runtime, agent, config, run directory, shim, images and MPS."""
    from ..doctor.examine import Node, findings
    from ..doctor.finding import FAIL
    from ..progress import Progress

    with Progress() as progress:
        found = findings(Node(run_dir, state_dir, kubelet_dir, host_root, config), progress.begin)
    if output == "json":
        rows = [{"version": OUTPUT_VERSION, **asdict(finding)} for finding in found]
        click.echo(json.dumps(rows, indent=2))
    else:
        for finding in found:
            fix = f"; fix: {finding.fix}" if finding.fix else ""
            line = (
                f"{finding.level:<{_LEVEL_WIDTH}} {finding.check:<{_CHECK_WIDTH}} "
                f"{finding.message}{fix}"
            )
            click.echo(printable(" ".join(line.split("\n"))))
    return int(any(finding.level == FAIL for finding in found))
