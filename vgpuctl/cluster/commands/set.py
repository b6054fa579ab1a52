"""`kubectl vgpu set`: puts a rule into the agents' config, and shows first what it will do.

The rule is one of `limits` in the ConfigMap of the chart, so it holds for the containers of a
namespace, those that run and those to come, on every node. Shown are the lines of the config that
change, and for each container that another rule matches then what is in force and what will be.
``-o json`` gives that as `vgpuctl set` does, with ``node``.
"""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import click

from deviceplugin.config.loading import parse_config
from deviceplugin.model.allocations import Owner
from deviceplugin.model.limit_rules import LimitRule
from libvgpu.errors import UsageError, VgpuError
from libvgpu.limits import ComputeMode
from libvgpu.sizes import parse_size

from ...commands.set import COLUMNS
from ...examples import examples
from ...options import compute_option, output_option
from ...render import Row, print_listing, printable
from ...run.requests import parse_core
from ..config_map import NAME, ConfigText, config_text, labels_of, path, pods_path
from ..kubectl_calls import change_config_map
from ..listing import NODE_COLUMN, say_problems
from ..nodes import PROGRAM, Nodes, Place, nodes_at
from ..options import reach_options
from ..rule_edit import Match, with_rule
from ..rule_effect import Labels, effect

Rules = tuple[Sequence[LimitRule], Sequence[LimitRule]]


@click.command(
    "set",
    epilog=examples(
        "kubectl vgpu set -n team-a --core 20 --memory 6GiB --dry-run",
        "kubectl vgpu set -n team-a --clear",
    ),
)
@click.option("-n", "--namespace", required=True, help="Whose containers.")
@click.option("--container", default="*", help="Only containers of this name.")
@click.option(
    "--pod-label",
    "labels",
    multiple=True,
    metavar="KEY=VALUE",
    help="Only of pods with this label; repeat it for several.",
)
@click.option(
    "--core",
    metavar="PERCENT",
    help="Share of each GPU's compute, 1 to 100; 60% is a part of what was asked.",
)
@click.option("--memory", metavar="SIZE", help="Memory limit on each GPU, for example 6GiB.")
@compute_option("How the share is held.")
@click.option("--clear", is_flag=True, help="Remove the rule for exactly these.")
@click.option("--dry-run", is_flag=True, help="Show what it will do, and change nothing.")
@click.option(
    "--config-map", default=NAME, show_default=True, help="ConfigMap of the agents' config."
)
@click.option("--config", "key", metavar="NAME", help="Which of several named configs.")
@reach_options
@output_option
def set_verb(  # noqa: PLR0913 - a parameter for each option
    place: Place,
    namespace: str,
    container: str,
    labels: Sequence[str],
    core: str | None,
    memory: str | None,
    compute: ComputeMode | None,
    clear: bool,
    dry_run: bool,
    config_map: str,
    key: str | None,
    output: str,
) -> int:
    """Limit containers by a rule of the agents' config."""
    match = Match(namespace, container, tuple(map(_label, labels)))
    values = _values(core, memory, compute)
    if clear == bool(values):
        raise UsageError(
            "--clear takes back all values: give it alone, then set new ones"
            if clear
            else "nothing to set: give --core, --memory or --compute, or --clear"
        )
    with nodes_at(place) as nodes:
        where = path(place.agent_namespace, config_map)
        config = config_text(nodes.read(where), key, config_map)
        text = with_rule(config.text, match, values or None)
        rules = parse_config(config.text).rules, parse_config(text).rules
        pages, reports = nodes.slices(), nodes.reports()
        told = {each.node: each.page for each in reports if each.page is not None}
        labels_of_pods = _labels_of_pods(nodes, namespace, rules)
        rows = [
            row
            for each in pages
            if each.page is not None
            and (report := told.get(each.node)) is not None
            and config.key == (report.config.name or config.key)
            for row in effect(each.page, report, rules, labels_of_pods)
        ]
    _show(config, text, rows, output)
    known = {each.node for each in pages if each.problem}
    silent = say_problems([*pages, *(each for each in reports if each.node not in known)])
    if dry_run:
        click.echo(f"{PROGRAM}: nothing is changed (--dry-run)", err=True)
        return silent
    change_config_map(place.kubectl, place.agent_namespace, config_map, config.change(text))
    helm = "; put it into the chart's values too, or its next upgrade takes it back"
    click.echo(
        f"{PROGRAM}: ConfigMap {config_map} is changed; agents have it within about a minute"
        f"{helm if config.is_helms else ''}",
        err=True,
    )
    return 0


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"--pod-label {text!r} is not KEY=VALUE")
    return name, value


def _values(core: str | None, memory: str | None, compute: ComputeMode | None) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if core is not None:
        # With a sign it is a part of what was asked, which the config's own parser judges.
        values["core"] = core.strip() if core.strip().endswith("%") else parse_core(core)
    if memory is not None:
        parse_size(memory, "memory")
        values["memory"] = memory
    if compute is not None:
        values["compute"] = compute.word
    return values


def _labels_of_pods(nodes: Nodes, namespace: str, rules: Rules) -> Labels:
    """Returns what tells the labels of a pod of a namespace; they are read where a rule asks."""
    known: Mapping[str, Mapping[str, str]] | None = None
    if any(rule.needs_labels for each in rules for rule in each):
        try:
            known = labels_of(nodes.read(pods_path(namespace)))
        except VgpuError as error:
            click.echo(
                f"{PROGRAM}: the effect of rules by labels is not shown, because the labels of "
                f"pods are not known: {error.message}",
                err=True,
            )

    def labels(owner: Owner) -> Mapping[str, str] | None:
        return known.get(owner.pod) if known is not None and owner.namespace == namespace else None

    return labels


def _show(config: ConfigText, text: str, rows: Sequence[Row], output: str) -> None:
    if output == "table":
        before, after = config.text.splitlines(), text.splitlines()
        for line in difflib.unified_diff(before, after, config.key, config.key, n=2, lineterm=""):
            click.echo(printable(line))
        click.echo()
        rows = [row for row in rows if row["changed"]]
    print_listing(rows, (NODE_COLUMN, *COLUMNS), output, "no container that runs now is changed")
