"""What the API server, kubectl and agents answer becomes a sentence that says what to do."""

import json

import pytest

from libvgpu.errors import VgpuError
from vgpuctl.cluster.agents import Agent, list_path, pod_path
from vgpuctl.cluster.refusals import ApiRefusal, NoAnswer, refusal

LIST = list_path("vgpu-system")
PAGE, _ = Agent("vgpu-system", "p", "n", 9447).path("/v1/slices")
OLDER, _ = Agent("vgpu-system", "p", "n", 9446, is_inside=False).path("/v1/slices")


def status(message: str) -> bytes:
    return json.dumps({"kind": "Status", "message": message}).encode()


@pytest.mark.parametrize(
    ("path", "right"),
    [
        pytest.param(LIST, "list pods in namespace vgpu-system", id="agents"),
        pytest.param(OLDER, "get pods/proxy in namespace vgpu-system, as its", id="older-page"),
        pytest.param(pod_path("team/p", ""), "get pods in namespace team", id="pod"),
    ],
)
def test_the_right_that_is_missing_is_named(path: str, right: str) -> None:
    error = refusal(403, status('pods is forbidden: User "u" cannot …'), path)
    assert isinstance(error, ApiRefusal)
    assert error.message == 'the API server refuses: pods is forbidden: User "u" cannot …'
    assert error.hint is not None and f"the right to {right}" in error.hint


@pytest.mark.parametrize(
    ("code", "body", "path", "kind", "said"),
    [
        pytest.param(
            401, status("Unauthorized"), LIST, ApiRefusal, "does not know this user", id="unknown"
        ),
        pytest.param(
            500, b"dial tcp 1.2.3.4:443: refused\n", LIST, ApiRefusal,
            "the API server cannot be reached: dial tcp 1.2.3.4:443: refused", id="kubectl",
        ),
        pytest.param(
            500, b"the node agent failed; see its log\n", PAGE, NoAnswer,
            "the node agent failed; see its log", id="agent",
        ),
        pytest.param(
            503, status("error trying to reach service: dial"), PAGE, NoAnswer,
            "error trying to reach service: dial", id="dead-agent",
        ),
        pytest.param(500, status("etcd"), LIST, NoAnswer, "etcd", id="api-server"),
        pytest.param(404, b"no such page\nmore", PAGE, NoAnswer, "no such page", id="older"),
        pytest.param(418, b"", PAGE, NoAnswer, "answers with status 418", id="nothing"),
        pytest.param(404, b"[]", PAGE, NoAnswer, "answers with status 404", id="odd"),
        pytest.param(404, b"\xff", PAGE, NoAnswer, "\ufffd", id="no-text"),
    ],
)  # fmt: skip
def test_who_failed_is_told(
    code: int, body: bytes, path: str, kind: type[VgpuError], said: str
) -> None:
    error = refusal(code, body, path)
    assert type(error) is kind
    assert said in error.message
    if isinstance(error, NoAnswer):
        assert error.status == code
