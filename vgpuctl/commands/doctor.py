"""`vgpuctl doctor`: whether this node can hand out and hold slices, and how to fix what cannot.

One line per finding: ``ok``, ``warn`` (it works, or this user may not see it) or ``fail``, with the
way to fix it. ``-o json`` gives a list of objects with the keys ``check, level, message, fix``.
Exit status: 0 where nothing failed, else 1. It changes nothing, and needs no root to tell what an
ordinary user may see.
"""

import json
from dataclasses import asdict
from pathlib import Path

import click

from ..examples import examples
from ..options import node_dirs_options, output_option
from ..render import printable

_LEVEL_WIDTH, _CHECK_WIDTH = 5, 14


@click.command(
    short_help="Check whether this node can give and hold slices.",
    epilog=examples(
        "vgpuctl doctor", "vgpuctl doctor -o json | jq '.[] | select(.level == \"fail\")'"
    ),
)
@node_dirs_options
@output_option
def doctor(run_dir: Path | None, state_dir: Path, kubelet_dir: Path, output: str) -> int:
    """Check driver, kubelet, agent, config, run directory, shim and MPS."""
    from ..doctor.examine import findings
    from ..doctor.finding import FAIL

    found = findings(run_dir, state_dir, kubelet_dir)
    if output == "json":
        click.echo(json.dumps([asdict(finding) for finding in found], indent=2))
    else:
        for finding in found:
            fix = f"; fix: {finding.fix}" if finding.fix else ""
            line = (
                f"{finding.level:<{_LEVEL_WIDTH}} {finding.check:<{_CHECK_WIDTH}} "
                f"{finding.message}{fix}"
            )
            click.echo(printable(" ".join(line.split("\n"))))
    return int(any(finding.level == FAIL for finding in found))
