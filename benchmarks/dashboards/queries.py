"""The dashboards' queries and legends, as Grafana makes them of the files."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILES = Path(__file__).resolve().parents[2] / "deploy/chart/files"
_LABEL = re.compile(r"{{\s*(\w+)\s*}}")
#: The legend that Grafana makes by itself.
_AUTO = "__auto"
_ALL: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Target:
    """One query of a panel, and the form of its legends."""

    query: str
    legend: str


def dashboards() -> dict[str, dict[str, Any]]:
    """Returns the dashboards by name."""
    return {path.stem: json.loads(path.read_text()) for path in FILES.glob("dashboards/*.json")}


def choose(query: str, dashboard: Mapping[str, Any], chosen: Mapping[str, str] = _ALL) -> str:
    """Returns a query with its dashboard's variables filled in.

    Args:
        chosen: patterns by variable; ``All`` for those that are not there.
    """
    for variable in dashboard["templating"]["list"]:
        name = variable["name"]
        query = query.replace(f'"${name}"', f'"{chosen.get(name, ".+")}"')
    return query


def targets(
    panel: Mapping[str, Any], dashboard: Mapping[str, Any], chosen: Mapping[str, str] = _ALL
) -> Iterator[Target]:
    """Yields a panel's queries."""
    for target in panel["targets"]:
        yield Target(choose(target["expr"], dashboard, chosen), target["legendFormat"])


def legend(form: str, labels: Mapping[str, str]) -> str:
    """Returns what stands next to a series."""
    if form == _AUTO:
        shown = (f'{key}="{value}"' for key, value in sorted(labels.items()) if key[0] != "_")
        return f"{labels.get('__name__', '')}{{{', '.join(shown)}}}"
    return _LABEL.sub(lambda found: labels.get(found[1], ""), form).strip()
