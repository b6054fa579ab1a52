"""`vgpuctl events`: what the node agent told pods and the Node, also while it is down.

The same as the Kubernetes Events of this node, which an API server forgets after an hour, from the
file that the agent keeps; so it needs neither. ``-o json`` gives a list of objects with the keys
``version``, ``at`` (seconds since 1970), ``reason``, ``is_warning``, ``subject``
(NAMESPACE/POD/CONTAINER; empty for the node), ``text``, ``left_out`` (equal ones since the line
before that are not shown); with ``--follow`` one object a line.
"""

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from deviceplugin.pages.events import KeptEvent
from deviceplugin.store.event_file import kept_events
from libvgpu.errors import AllocationRefused, UsageError

from ..examples import examples
from ..options import node_dirs_options, output_option
from ..output.rows import EventRow
from ..render import OUTPUT_VERSION, Column, Row, print_listing, printable

_LOOK_EVERY_S = 0.5
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _age_s(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Returns the seconds of ``90s``, ``15m``, ``2h`` or ``3d``."""
    if value is None:
        return None
    number, unit = value[:-1], value[-1:]
    if unit not in _UNITS_S or not number.isdecimal():
        raise UsageError(
            f"--since {value!r} is not a time; write a number and s, m, h or d: 90s, 2h"
        )
    return float(number) * _UNITS_S[unit]


def _row(event: KeptEvent) -> EventRow:
    return {
        "version": OUTPUT_VERSION,
        "at": event.at,
        "reason": event.reason,
        "is_warning": event.is_warning,
        "subject": event.subject,
        "text": event.text,
        "left_out": event.left_out,
    }


def _when(row: Row) -> str:
    at = row["at"]
    assert isinstance(at, float | int)
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _text(row: Row) -> str:
    more = f" (and {row['left_out']} more before)" if row["left_out"] else ""
    return f"{row['text']}{more}"


_COLUMNS = (
    Column("TIME", _when),
    Column("LEVEL", lambda row: "warning" if row["is_warning"] else "normal"),
    Column("REASON", lambda row: str(row["reason"])),
    Column("SUBJECT", lambda row: str(row["subject"]) or "node"),
    Column("MESSAGE", _text),
)


def _read(state_dir: Path) -> list[KeptEvent]:
    try:
        return kept_events(state_dir)
    except PermissionError:
        raise AllocationRefused(
            f"the events in {state_dir} may not be read by this user",
            hint="ask as the agent's user, which is root on a node",
        ) from None


def _concerns(event: KeptEvent, wanted: str) -> bool:
    """Returns whether an event is of a pod or of a container of it, by NAMESPACE/POD…"""
    return event.subject == wanted or event.subject.startswith(f"{wanted}/")


@click.command(
    epilog=examples(
        "vgpuctl events --since 2h --pod team-a/train-0", "vgpuctl events --warnings --follow"
    )
)
@node_dirs_options
@click.option(
    "--since",
    metavar="TIME",
    callback=_age_s,
    help="Only those of the last 90s, 15m, 2h or 3d.",
)
@click.option("--pod", metavar="NAMESPACE/POD[/CONTAINER]", help="Only those of one pod.")
@click.option("--warnings", is_flag=True, help="Only what somebody has to do something about.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes; ends with Ctrl-C.")
@output_option
def events(
    run_dir: Path | None,
    state_dir: Path,
    kubelet_dir: Path,
    since: float | None,
    pod: str | None,
    warnings: bool,
    follow: bool,
    output: str,
) -> None:
    """Show what the agent told pods and the node."""
    if pod is not None and not 2 <= len([part for part in pod.split("/") if part]) <= 3:
        raise UsageError(f"--pod {pod!r} is not NAMESPACE/POD or NAMESPACE/POD/CONTAINER")
    after = time.time() - since if since is not None else 0.0

    def wanted(found: Sequence[KeptEvent]) -> list[KeptEvent]:
        return [
            each
            for each in found
            if each.at >= after
            and (each.is_warning or not warnings)
            and (pod is None or _concerns(each, pod))
        ]

    first = _read(state_dir)
    if not follow:
        rows = [_row(each) for each in wanted(first)]
        print_listing(rows, _COLUMNS, output, f"no events in {state_dir}")
        return
    _show(wanted(first), output)
    for found in _more(state_dir, first):
        _show(wanted(found), output)


def _more(state_dir: Path, known: list[KeptEvent]) -> Iterator[list[KeptEvent]]:
    """Yields what comes, again and again; the file may be replaced by a shorter one meanwhile."""
    while True:
        time.sleep(_LOOK_EVERY_S)
        now = _read(state_dir)
        last = known[-1] if known else None
        new = now[now.index(last) + 1 :] if last in now else now
        if new:
            yield new
        known = now


def _show(found: Sequence[KeptEvent], output: str) -> None:
    for event in found:
        row = _row(event)
        if output == "json":
            click.echo(json.dumps(dict(row)))
        else:
            click.echo(printable("  ".join(column.cell(row) for column in _COLUMNS)))
