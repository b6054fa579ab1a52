"""Asking the node agent over its socket in the run directory (`deviceplugin.http.control_api`)."""

import http.client
import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec

from deviceplugin.pages import AGENT_SOCKET
from libvgpu.decoding import converter, json_decoder
from libvgpu.errors import AllocationRefused, UnknownAllocation, UsageError, VgpuError

from .progress import Progress
from .unix_http import UnixConnection

_TIMEOUT_S = 5.0
_MOST_BYTES = 8 << 20


class AgentUnreachable(VgpuError):  # noqa: N818 - it is the agent that is unreachable
    """No agent answers.

    Attributes:
        denied: there is a socket, but this user may not open it.
    """

    def __init__(self, message: str, hint: str, denied: bool = False) -> None:
        super().__init__(message, hint)
        self.denied = denied


class AgentOfReport(msgspec.Struct):
    """The agent itself; ``started_at`` in seconds since the epoch.

    Attributes:
        sees_node_pids: its pids are the node's, as it needs to tell whose processes use a GPU.
    """

    version: str
    pid: int
    node: str
    started_at: float
    sees_node_pids: bool = True


class ConfigOfReport(msgspec.Struct):
    """Its config.

    Attributes:
        path: of the file that was last looked at.
        name: of the named config in force; empty where there is one file only, or for the empty
            config.
        chosen_by: what chose the name; empty where there is one file only.
        is_kept: what is in force was kept from before the agent's start, since the file is bad.
        label_problem: why the label that chooses the name is not told; empty where it is.
        error: why the file's present content, or a part of it, is not in force.
        in_part: the rest of the present content is.
    """

    path: str
    digest: str
    rules: int
    error: str | None = None
    hint: str | None = None
    in_part: bool = False
    name: str = ""
    chosen_by: str = ""
    is_kept: bool = False
    label_problem: str = ""

    @property
    def shown(self) -> str:
        """The named config in force and what chose it; empty where there is one file only."""
        name = f"config {self.name}" if self.name else "the empty config"
        return f"{name}, chosen by {self.chosen_by}" if self.chosen_by else ""


class ResourceOfReport(msgspec.Struct):
    """One resource; ``registered_at`` in seconds since the epoch, None while it is not."""

    name: str
    registered_at: float | None


class ProcessOfReport(msgspec.Struct):
    """A process on a GPU; ``memory_bytes`` is None where NVML cannot say."""

    gpu: str
    pid: int
    command: str
    memory_bytes: int | None = None
    allocation: str = ""
    owner: str = ""
    how: str = "without the shim"


class DamagedOfReport(msgspec.Struct):
    """A container that has made its `usage` unreadable."""

    allocation: str
    owner: str = ""
    problem: str = ""


class WatchOfReport(msgspec.Struct):
    """What the watch of processes has found; the lists may be shorter than their counts."""

    problem: str = ""
    policy: str = ""
    bypassing_count: int = 0
    bypassing: list[ProcessOfReport] = []
    foreign_count: int = 0
    foreign: list[ProcessOfReport] = []
    damaged_count: int = 0
    damaged: list[DamagedOfReport] = []


class InjectionOfReport(msgspec.Struct):
    """How containers get their GPUs.

    Attributes:
        lists: values of ``deviceListStrategy`` in force; none of an agent that does not say.
        because: why these.
        needs_class: runtime handlers of which pods must name one.
        spec: the CDI spec that the agent keeps; empty where it needs none.
        problems: what is wrong with them, a sentence each.
    """

    lists: list[str] = []
    because: str = ""
    needs_class: list[str] = []
    spec: str = ""
    problems: list[str] = []


class GivenOfReport(msgspec.Struct):
    """A GPU or MIG device of an allocation.

    Attributes:
        core: where the share in force comes from; empty of an agent that does not say.
        memory: the same of the memory limit.
        compute: the same of how the share is held.
        asked_core_percent: what was asked for; None of an agent that does not say.
    """

    gpu: str
    core: str = ""
    memory: str = ""
    compute: str = ""
    asked_core_percent: int | None = None
    asked_memory_bytes: int | None = None


class AllocationOfReport(msgspec.Struct):
    """A slice that a container has."""

    allocation: str
    owner: str
    devices: list[GivenOfReport] = []
    shim_build: str = ""


class DeviceOfReport(msgspec.Struct):
    """A device or replica that a container has; ``owner`` is empty while it is not known."""

    resource: str
    id: str
    owner: str = ""


class AgentReport(msgspec.Struct):
    """What ``/v1/state`` says; what a newer agent adds is left out."""

    agent: AgentOfReport
    config: ConfigOfReport
    resources: list[ResourceOfReport]
    shim_build: str
    mps_gpus: list[str] = []
    loop_problem: str | None = None
    podresources_problem: str | None = None
    unheard_resources: list[str] = []
    pods_problem: str = ""
    publish_problem: str = ""
    unhealthy_gpus: dict[str, str] = {}
    left_out_gpus: dict[str, str] = {}
    driver_problem: str = ""
    watch: WatchOfReport = msgspec.field(default_factory=WatchOfReport)
    draining_gpus: dict[str, str] = {}
    injection: InjectionOfReport = msgspec.field(default_factory=InjectionOfReport)
    withheld_gpus: dict[str, str] = {}
    unmatched_entries: list[str] = []
    mig_differences: dict[str, str] = {}
    allocations: list[AllocationOfReport] = []
    devices: list[DeviceOfReport] = []


_REPORT, _report = json_decoder(AgentReport), converter(AgentReport)


def agent_report(run_dir: Path) -> AgentReport:
    """Returns the state of the agent of a run directory.

    Raises:
        AgentUnreachable: there is none, or it does not answer.
        VgpuError: its answer is of another form.
    """
    answer = _ask(run_dir, "GET", "/v1/state")
    try:
        return _report(answer)
    except msgspec.ValidationError as error:
        raise _other_form(f"the agent of {run_dir}", error) from None


def read_report(content: bytes) -> AgentReport:
    """Returns what an agent's page ``/v1/state`` says.

    Raises:
        VgpuError: it is of another form.
    """
    try:
        return _REPORT.decode(content)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise _other_form("the agent", error) from None


def _other_form(who: str, error: Exception) -> VgpuError:
    return VgpuError(
        f"{who} answers in a form that this vgpuctl does not know: {error}",
        hint="use the vgpuctl of the agent's version",
    )


class ValueOfConfig(msgspec.Struct):
    """One value of the config in force, and where it comes from."""

    key: str
    value: Any
    origin: str


class ConfigInForce(msgspec.Struct):
    """What ``/v1/config`` says; see `ConfigOfReport`."""

    path: str
    values: list[ValueOfConfig]
    name: str = ""
    is_kept: bool = False


_config = converter(ConfigInForce)


def config_in_force(run_dir: Path) -> ConfigInForce:
    """Returns the config of the agent of a run directory.

    Raises:
        AgentUnreachable: there is none, or it does not answer.
        VgpuError: its answer is of another form, since it is of another version.
    """
    answer = _ask(run_dir, "GET", "/v1/config")
    try:
        return _config(answer)
    except msgspec.ValidationError as error:
        raise VgpuError(
            f"the agent of {run_dir} answers in a form that this vgpuctl does not know: {error}",
            hint="use the vgpuctl of the agent's version",
        ) from None


def answer_of(run_dir: Path, path: str) -> Any:
    """Returns what the agent of a run directory answers to a GET, as JSON, whatever its form.

    Raises:
        AgentUnreachable: there is none, or it does not answer.
    """
    return _ask(run_dir, "GET", path)


def metrics_page(run_dir: Path) -> str:
    """Returns what scrapers of the agent of a run directory get, as text.

    Raises:
        AgentUnreachable: there is none, or it does not answer.
    """
    return str(_ask(run_dir, "GET", "/metrics", read=bytes.decode))


def set_override(run_dir: Path, allocation_id: str, values: Mapping[str, object]) -> Any:
    """Has the agent set values for an allocation; returns `limits.changes.changed_limits`.

    Raises:
        AgentUnreachable: there is no agent, or it does not answer.
        VgpuError: it refuses, with its own sentence.
    """
    return _ask(run_dir, "POST", f"/v1/allocations/{allocation_id}/override", values)


def clear_override(run_dir: Path, allocation_id: str) -> Any:
    """Has the agent take back what was set; like `set_override`."""
    return _ask(run_dir, "DELETE", f"/v1/allocations/{allocation_id}/override")


def _ask(
    run_dir: Path,
    method: str,
    path: str,
    body: Mapping[str, object] | None = None,
    read: Callable[[bytes], Any] = json.loads,
) -> Any:
    where = run_dir / AGENT_SOCKET
    connection = UnixConnection(where, _TIMEOUT_S)
    try:
        with Progress() as progress:
            progress.begin("asking the agent")
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            content = read(answer.read(_MOST_BYTES))
    except PermissionError:
        raise AgentUnreachable(
            f"{where} may not be opened by this user",
            "ask as the agent's user, root on a node",
            denied=True,
        ) from None
    except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise AgentUnreachable(
            f"no node agent answers at {where}: {why}",
            "start it (python -m deviceplugin), name its directory with --run-dir, or see "
            "vgpuctl doctor",
        ) from None
    finally:
        connection.close()
    if answer.status == HTTPStatus.OK:
        return content
    problem = content if isinstance(content, dict) else {}
    kinds: Mapping[int, type[VgpuError]] = {
        HTTPStatus.NOT_FOUND: UnknownAllocation,
        HTTPStatus.BAD_REQUEST: UsageError,
    }
    kind = kinds.get(answer.status, AllocationRefused)
    message = problem.get("message") or f"the agent answers with status {answer.status}"
    raise kind(str(message), problem.get("hint"))
