"""Reads the parts of a support bundle, one after the other; one that fails is told and left out.

`collect` returns the files as text and why others are not among them.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from deviceplugin.pages.events import KeptEvent
from deviceplugin.pages.state import AgentReport
from deviceplugin.store.event_file import kept_events
from libvgpu.allocation_dirs import list_allocations
from libvgpu.errors import VgpuError
from libvgpu.slices import Slice, read_slices

from .. import agent_client
from ..agent_client import AgentUnreachable
from ..doctor.examine import Node, agent_said, findings
from ..node_gpus import seen_gpus
from ..observe import gpu_rows, gpu_state, process_rows
from ..options import DEFAULT_STATE_DIR
from ..progress import Progress
from . import machine, privacy
from .described import described

_DOMAIN = "nvidia.com"


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a node's files are.

    Attributes:
        given: the run directory that was named; None for the default one.
        run_dir: the one that is looked in.
    """

    given: Path | None
    run_dir: Path
    kubelet_dir: Path
    state_dir: Path = DEFAULT_STATE_DIR


@dataclass(slots=True)
class Collected:
    """What was read.

    Attributes:
        values: JSON values by file name.
        texts: texts by file name.
        left_out: why a file is not there, by its name.
    """

    values: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


# A line for each part.
def collect(sources: Sources, anonymise: bool, progress: Progress) -> Collected:  # noqa: C901
    """Reads all that this user may; changes nothing on the node."""
    found = Collected()
    run_dir, state_dir = sources.run_dir, sources.state_dir

    def take(name: str, read: Callable[[], Any]) -> Any:
        progress.begin(f"reading {name}")
        try:
            value = read()
        except VgpuError as error:
            found.left_out[name] = error.message
        except OSError as error:
            found.left_out[name] = f"{error.filename or name}: {error.strerror or error}"
        except Exception as error:  # a part that is broken must not keep the others out
            found.left_out[name] = f"an error of vgpuctl itself: {error!r}"
        else:
            (found.texts if name.endswith(".txt") else found.values)[name] = value
            return value
        return None

    def keep(name: str, read: Callable[[], Any]) -> Any:
        return take(name, lambda: privacy.without_arguments(read()))

    def ask(read: Callable[[], Any]) -> Any:
        """Asks the agent; one that has not answered is not waited for again."""
        if isinstance(said, AgentUnreachable):
            raise said
        return read()

    progress.begin("asking the agent")
    said = agent_said(run_dir)
    report = said if isinstance(said, AgentReport) else None
    state = keep("state.json", lambda: ask(lambda: agent_client.answer_of(run_dir, "/v1/state")))
    keep("config.json", lambda: ask(lambda: agent_client.answer_of(run_dir, "/v1/config")))
    path = report.config.path if report else None
    if path is None:
        found.left_out["config-file.txt"] = "only the agent tells where its config is"
    elif anonymise:
        found.left_out["config-file.txt"] = (
            "comments may have names; config.json has the values that are in force"
        )
    else:
        take("config-file.txt", lambda: _text_of_config(Path(path), report))
    take("metrics.txt", lambda: ask(lambda: agent_client.metrics_page(run_dir)))
    keep("doctor.json", lambda: _doctor(sources, said))
    events: list[KeptEvent] = take("events.json", lambda: kept_events(state_dir)) or []
    if events:
        found.values["events.json"] = [msgspec.to_builtins(event) for event in events]
    slices: tuple[Slice, ...] = ()

    def rows() -> list[Any]:
        nonlocal slices
        slices = read_slices(run_dir)
        return list(process_rows(slices))

    keep("ps.json", rows)
    keep("status.json", lambda: gpu_rows(seen_gpus()[0], slices, partial(gpu_state, report)))
    keep("describe.json", lambda: described(run_dir, report, events))
    take("allocations.json", lambda: machine.directories(run_dir))
    domain = _domain(report)
    take("kubelet.json", lambda: machine.kubelet_counts(sources.kubelet_dir, domain))
    take("versions.json", lambda: machine.versions(report))
    take("kernel.txt", lambda: "".join(f"{line}\n" for line in machine.kernel_lines()))
    if report and report.mps_gpus:
        take("mps-runner-log.txt", lambda: machine.tail(run_dir / "mps" / "runner.log"))
    if anonymise:
        _anonymise(found, sources, state, events)
    return found


def _domain(report: AgentReport | None) -> str:
    names = [resource.name for resource in report.resources] if report else []
    return next((name.partition("/")[0] for name in names if "/vgpu-" in name), _DOMAIN)


def _text_of_config(path: Path, report: AgentReport | None) -> str:
    named = path / report.config.name if report and path.is_dir() else path
    return named.read_text("utf-8", "replace")


def _doctor(sources: Sources, said: AgentReport | VgpuError) -> list[dict[str, str]]:
    node = Node(sources.given, sources.state_dir, sources.kubelet_dir)
    return [asdict(finding) for finding in findings(node, report=said)]


def _anonymise(found: Collected, sources: Sources, state: Any, events: list[KeptEvent]) -> None:
    # As it is and not by its form: the page of a newer agent must lose its names, too.
    said: Mapping[str, Any] = state or {}
    owners = [
        str(each.get("owner", ""))
        for key in ("allocations", "devices")
        for each in said.get(key, ())
    ]
    values = (found.values.get("config.json") or {}).get("values", ())
    config = {str(each["key"]): each["value"] for each in values}
    metas = [each.meta for each in list_allocations(sources.run_dir)]
    known = privacy.names_of_tenants(metas, owners, events, config)
    node = str(said.get("agent", {}).get("node", ""))
    names = privacy.Names(known | ({node} if node else set()) | {os.uname().nodename})
    found.values = {name: names.in_values(value) for name, value in found.values.items()}
    found.texts = {name: names.replaced(text) for name, text in found.texts.items()}
    found.left_out = {name: names.replaced(text) for name, text in found.left_out.items()}


def as_text(found: Collected, readme: str) -> dict[str, str]:
    """Returns the files of the archive."""
    files = {"README.txt": readme}
    for name, value in found.values.items():
        files[name] = json.dumps(value, indent=2, default=str) + "\n"
    return files | found.texts


def moment(at_s: float) -> str:
    """Returns a time as it stands in names of files, UTC."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at_s))
