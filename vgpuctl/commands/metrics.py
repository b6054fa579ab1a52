"""`vgpuctl metrics`: one scrape of the node agent, for people.

Asked over the agent's socket, so it needs neither its port nor a network. ``-o json`` gives a list
of objects with the keys ``version``, ``name``, ``labels`` (a mapping), ``value``, ``type``
(``gauge``, ``counter`` …), ``help``.
"""

from pathlib import Path

import click

from libvgpu.errors import VgpuError

from ..agent_client import metrics_page
from ..examples import examples
from ..options import chosen_run_dir, node_dirs_options, output_option
from ..output.rows import MetricRow
from ..render import OUTPUT_VERSION, Column, Row, print_listing

_SHOWN = 100  # characters of what cannot be read


def _labels(row: Row) -> str:
    labels = row["labels"]
    assert isinstance(labels, dict)
    return " ".join(f"{name}={value}" for name, value in labels.items()) or "-"


def _value(row: Row) -> str:
    value = row["value"]
    assert isinstance(value, float)
    return str(int(value)) if value.is_integer() else f"{value:g}"


_COLUMNS = (
    Column("METRIC", lambda row: str(row["name"])),
    Column("LABELS", _labels),
    Column("VALUE", _value, right=True),
)


@click.command(
    short_help="Show the metrics of the agent.",
    epilog=examples("vgpuctl metrics refused throttled", "vgpuctl metrics train-0 -o json"),
)
@click.argument("texts", metavar="[TEXT]...", nargs=-1)
@click.option("--buckets", is_flag=True, help="Also the buckets of histograms.")
@node_dirs_options
@output_option
def metrics(
    texts: tuple[str, ...],
    buckets: bool,
    run_dir: Path | None,
    state_dir: Path,
    kubelet_dir: Path,
    output: str,
) -> None:
    """Show the agent's metrics, or those with a TEXT in name or labels."""
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError:
        raise VgpuError(
            "the package prometheus-client, which reads metrics, is not installed",
            hint="pip install 'vgpu[agent]'",
        ) from None

    page = metrics_page(chosen_run_dir(run_dir))
    try:
        families = list(text_string_to_metric_families(page))
    except ValueError as error:
        why = str(error)[:_SHOWN] or "it ends early"
        raise VgpuError(
            f"the agent does not answer with a page of metrics: {why}",
            hint="see vgpuctl doctor, and restart the agent if it is of another version",
        ) from None
    found: list[MetricRow] = [
        {
            "version": OUTPUT_VERSION,
            "name": sample.name,
            "labels": dict(sample.labels),
            "value": float(sample.value),
            "type": family.type,
            "help": family.documentation,
        }
        for family in families
        for sample in family.samples
        if buckets or not sample.name.endswith("_bucket")
    ]
    rows = [row for row in found if not texts or any(t in _searched(row) for t in texts)]
    print_listing(rows, _COLUMNS, output, "no metric contains that text")


def _searched(row: Row) -> str:
    return f"{row['name']} {_labels(row)}"
