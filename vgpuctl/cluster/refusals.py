"""What the API server says where it does not do what it is asked, as sentences. Pure."""

import json
from http import HTTPStatus

from libvgpu.errors import VgpuError

RIGHTS = "deploy/examples/kubectl-vgpu/rights.yaml"
RIGHTS_TO_SET = "deploy/examples/kubectl-vgpu/rights-to-set.yaml"
KUBECTL_HINT = (
    "see that kubectl works: kubectl get pods; --context and --kubeconfig choose another cluster"
)
_MOST_SHOWN = 300


class ApiRefusal(VgpuError):  # noqa: N818 - it refuses
    """The API server refuses, for whatever is asked in this namespace."""


class NoAnswer(VgpuError):  # noqa: N818 - it is the absence of one
    """One read gave nothing; others may.

    Attributes:
        status: HTTP's, 0 where there was no answer at all.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


def refusal(status: int, body: bytes, path: str) -> VgpuError:
    """Returns the error for an answer that is not good.

    Args:
        status: HTTP's.
        body: the API server's `Status`, or what the agent behind it wrote.
        path: what was read.
    """
    said, is_of_api_server = _message(body)
    # Of what nobody stands behind the API server for, kubectl itself says so.
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR and not (is_of_api_server or _is_page(path)):
        return ApiRefusal(f"the API server cannot be reached: {said or 'no answer'}", KUBECTL_HINT)
    if status == HTTPStatus.UNAUTHORIZED:
        return ApiRefusal(
            f"the API server does not know this user: {said or 'Unauthorized'}",
            "log in again, or choose another user with --context or --kubeconfig",
        )
    if status == HTTPStatus.FORBIDDEN:
        return ApiRefusal(
            f"the API server refuses: {said or 'Forbidden'}",
            f"kubectl vgpu needs {_right(path)}; {_rights(path)} gives that and no more",
        )
    return NoAnswer(said or f"the API server answers with status {status}", status)


def _message(body: bytes) -> tuple[str, bool]:
    """Returns the message of a `Status`, else the first line of a text; and whether it is one."""
    text = body.decode(errors="replace")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return (text.strip().splitlines() or [""])[0][:_MOST_SHOWN], False
    if not isinstance(found, dict):
        return "", False
    return str(found.get("message", ""))[:_MOST_SHOWN], True


def _is_page(path: str) -> bool:
    """Returns whether an agent answers at a path."""
    return "/proxy/" in path or "/portforward?" in path


def _right(path: str) -> str:
    """Returns which right reading a path takes."""
    _, _, _, namespace, kind, *named = _parts(path)
    if "/portforward?" in path:
        return f"the rights to get and create pods/portforward in namespace {namespace}"
    if _is_page(path):
        return f"the right to get pods/proxy in namespace {namespace}, as its agents are older"
    return f"the right to {'get' if named else 'list'} {kind} in namespace {namespace}"


def _rights(path: str) -> str:
    return RIGHTS_TO_SET if "configmaps" in _parts(path) else RIGHTS


def _parts(path: str) -> list[str]:
    """Returns ``api``, ``v1``, ``namespaces``, the namespace, the kind, and a name."""
    return path.partition("?")[0].strip("/").split("/")
