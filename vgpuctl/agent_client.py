"""Asking the node agent over its socket in the run directory (`deviceplugin.http.control_api`)."""

import contextlib
import http.client
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from deviceplugin.model.overrides import Override
from deviceplugin.pages import AGENT_SOCKET
from deviceplugin.pages.changes import CHANGED, PROBLEM, ChangedLimits, OverrideRequest, Problem
from deviceplugin.pages.config import CONFIG, ConfigInForce
from deviceplugin.pages.state import STATE, AgentReport
from libvgpu.errors import AllocationRefused, UnknownAllocation, UsageError, VgpuError

from .progress import Progress
from .unix_http import UnixConnection

_TIMEOUT_S = 5.0
_MOST_BYTES = 8 << 20

_Page = TypeVar("_Page")


class AgentUnreachable(VgpuError):  # noqa: N818 - it is the agent that is unreachable
    """No agent answers.

    Attributes:
        denied: there is a socket, but this user may not open it.
    """

    def __init__(self, message: str, hint: str, denied: bool = False) -> None:
        super().__init__(message, hint)
        self.denied = denied


def agent_report(run_dir: Path) -> AgentReport:
    """Returns the state of the agent of a run directory.

    Raises:
        AgentUnreachable: there is none, or it does not answer.
        VgpuError: its answer is of another form.
    """
    return _ask(run_dir, "GET", "/v1/state", STATE.decode)


def config_in_force(run_dir: Path) -> ConfigInForce:
    """Returns the config of the agent of a run directory, as `agent_report` does."""
    return _ask(run_dir, "GET", "/v1/config", CONFIG.decode)


def answer_of(run_dir: Path, path: str) -> Any:
    """Returns what the agent of a run directory answers to a GET, as JSON, whatever its form.

    Raises:
        AgentUnreachable: there is none, or it does not answer.
    """
    return _ask(run_dir, "GET", path, msgspec.json.decode)


def metrics_page(run_dir: Path) -> str:
    """Returns what scrapers of the agent of a run directory get, as text.

    Raises:
        AgentUnreachable: there is none, or it does not answer.
    """
    return _ask(run_dir, "GET", "/metrics", bytes.decode)


def set_override(run_dir: Path, allocation_id: str, override: Override | None) -> ChangedLimits:
    """Has the agent set values for an allocation, or take back what was set; returns what that did.

    Raises:
        AgentUnreachable: there is no agent, or it does not answer.
        VgpuError: it refuses, with its own sentence, or its answer is of another form.
    """
    path = f"/v1/allocations/{allocation_id}/override"
    if override is None:
        return _ask(run_dir, "DELETE", path, CHANGED.decode)
    body = msgspec.json.encode(OverrideRequest.of(override))
    return _ask(run_dir, "POST", path, CHANGED.decode, body)


def _ask(
    run_dir: Path,
    method: str,
    path: str,
    read: Callable[[bytes], _Page],
    body: bytes | None = None,
) -> _Page:
    where = run_dir / AGENT_SOCKET
    connection = UnixConnection(where, _TIMEOUT_S)
    try:
        with Progress() as progress:
            progress.begin("asking the agent")
            connection.request(method, path, body)
            answer = connection.getresponse()
            content = answer.read(_MOST_BYTES)
        if answer.status == HTTPStatus.OK:
            return read(content)
    except PermissionError:
        raise AgentUnreachable(
            f"{where} may not be opened by this user",
            "ask as the agent's user, which is root on a node",
            denied=True,
        ) from None
    except msgspec.ValidationError as error:
        more = "" if method == "GET" else "; vgpuctl ps shows the limits"
        raise VgpuError(
            f"the agent of {run_dir} answers in a form that this vgpuctl does not know: {error}",
            hint=f"use the vgpuctl of the agent's version{more}",
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
    raise _refusal(answer.status, content)


def _refusal(status: int, content: bytes) -> VgpuError:
    """Returns the error for an answer that is not good."""
    problem = Problem()
    with contextlib.suppress(ValueError, RecursionError):
        problem = PROBLEM.decode(content)
    kinds: Mapping[int, type[VgpuError]] = {
        HTTPStatus.NOT_FOUND: UnknownAllocation,
        HTTPStatus.BAD_REQUEST: UsageError,
    }
    kind = kinds.get(status, AllocationRefused)
    return kind(problem.message or f"the agent answers with status {status}", problem.hint)
