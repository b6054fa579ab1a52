"""The agent's socket: what is well formed reaches the service, the rest has a reason."""

import json
from dataclasses import replace

import pytest
from werkzeug.test import Client, TestResponse

from deviceplugin.http.control_api import ControlApi
from deviceplugin.model.overrides import LimitChange, Override
from deviceplugin.pages.state import STATE, AgentReport, ReportedAgent, ReportedConfig
from libvgpu.errors import AllocationRefused, UnknownAllocation
from libvgpu.limits import ComputeMode, ContainerLimits, DeviceLimit, Family

GIB = 1 << 30
BEFORE = ContainerLimits("id-1", Family.VGPU, (DeviceLimit("GPU-0", 8 * GIB, core_percent=40),))
AFTER = replace(
    BEFORE, devices=(replace(BEFORE.devices[0], core_percent=20, memory_limit_bytes=4 * GIB),)
)
REPORT = AgentReport(ReportedAgent("1", 7, "n1", 0.0), ReportedConfig("/c", "d", 1), (), "b")
PATH = "/v1/allocations/id-1/override"


class Service:
    """Notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Override | None]] = []
        self.problem: Exception | None = None

    def set(self, allocation_id: str, override: Override | None) -> LimitChange:
        self.asked.append((allocation_id, override))
        if self.problem is not None:
            raise self.problem
        return LimitChange("a/b/c", BEFORE, AFTER)


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def api(service: Service) -> ControlApi:
    return ControlApi(service.set, lambda: REPORT)


def ask(api: ControlApi, method: str, path: str, body: bytes = b"") -> TestResponse:
    answer = Client(api).open(path, method=method, data=body)
    assert answer.content_type == "application/json"
    return answer


def post(api: ControlApi, body: object, path: str = PATH) -> tuple[int, dict[str, object]]:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = ask(api, "POST", path, text)
    return answer.status_code, json.loads(answer.data)


def test_an_override_reaches_the_service_and_old_and_new_come_back(
    api: ControlApi, service: Service
) -> None:
    status, answer = post(api, {"core_percent": 20, "memory_bytes": 4 * GIB, "compute": "strict"})

    assert status == 200
    assert service.asked == [("id-1", Override(20, 4 * GIB, ComputeMode.STRICT))]
    assert answer == {
        "allocation": "id-1",
        "owner": "a/b/c",
        "devices": [
            {
                "gpu_uuid": "GPU-0",
                "old": {"memory_bytes": 8 * GIB, "core_percent": 40, "compute": "strict"},
                "new": {"memory_bytes": 4 * GIB, "core_percent": 20, "compute": "strict"},
                "pending": [],
            }
        ],
    }


def test_delete_clears_and_get_tells_the_state(api: ControlApi, service: Service) -> None:
    assert ask(api, "DELETE", PATH).status_code == 200
    assert service.asked == [("id-1", None)]
    assert STATE.decode(ask(api, "GET", "/v1/state").data) == REPORT


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "truncated"),
        (b"[1]", "Expected `object`"),
        ({"core": 20}, "unknown field `core`"),
        ({"core_percent": "20"}, "Expected `int | null`, got `str` - at `$.core_percent`"),
        ({"core_percent": 0}, "Expected `int` >= 1 - at `$.core_percent`"),
        ({"core_percent": 101}, "Expected `int` <= 100"),
        ({"memory_bytes": 1 << 43}, "Expected `int` <="),
        ({"memory_bytes": 1.5}, "got `float`"),
        ({"memory_bytes": 6}, "Expected `int` >= 1048576"),
        ({"compute": "fair"}, "Invalid enum value 'fair'"),
        ({}, "it sets nothing; give core_percent, memory_bytes or compute"),
    ],
)
def test_what_is_no_override_is_refused_before_the_service(
    api: ControlApi, service: Service, body: object, said: str
) -> None:
    status, answer = post(api, body)

    assert status == 400
    assert said in str(answer["message"])
    assert service.asked == []


@pytest.mark.parametrize(
    ("problem", "status"),
    [(AllocationRefused("too much", "take less"), 409), (UnknownAllocation("who?"), 404)],
)
def test_a_refusal_comes_back_with_its_sentence(
    api: ControlApi, service: Service, problem: AllocationRefused, status: int
) -> None:
    service.problem = problem

    assert post(api, {"core_percent": 1}) == (
        status,
        {"message": problem.message, "hint": problem.hint},
    )


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("POST", "/v1/allocations//override", 404),
        ("POST", "/v1/allocations/../state/override", 404),
        ("POST", f"/v1/allocations/{'x' * 65}/override", 404),
        ("GET", PATH, 405),
        ("PUT", PATH, 405),
        ("POST", "/v1/state", 405),
    ],
)
def test_other_paths_and_methods_are_refused_with_a_message(
    api: ControlApi, service: Service, method: str, path: str, status: int
) -> None:
    answer = ask(api, method, path, b'{"core_percent": 1}')

    assert answer.status_code == status
    assert json.loads(answer.data)["message"]
    assert ("Allow" in answer.headers) == (status == 405)
    assert service.asked == []


def test_a_fault_of_ours_is_an_answer(
    api: ControlApi, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    service.problem = RuntimeError("planted")

    status, answer = post(api, {"core_percent": 1})

    assert (status, answer["message"]) == (500, "the node agent failed; see its log")
    assert f"POST {PATH} failed" in caplog.messages
