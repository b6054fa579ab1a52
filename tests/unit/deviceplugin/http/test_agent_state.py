"""When the agent is healthy and ready, and what it says of its config."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from werkzeug.test import EnvironBuilder
from werkzeug.wrappers import Request

from deviceplugin.config.loading import parse_config
from deviceplugin.config.reload import ConfigWatch
from deviceplugin.config.source import ConfigSource
from deviceplugin.heartbeats import HELPER_LATE_S, Heartbeats
from deviceplugin.http.agent_state import LOOP_LATE_S, AgentState, Identity
from deviceplugin.model.agent_config import ConfigText
from deviceplugin.model.allocations import Allocation, Owner
from deviceplugin.model.gpus import Gpu
from deviceplugin.model.held_devices import with_given
from deviceplugin.policy.devices.device_resources import Withheld
from deviceplugin.policy.devices.layout import Layout
from deviceplugin.policy.limits.raise_units import RaiseUnits
from deviceplugin.policy.limits.resolver import DeviceOrigins, Origin, ResolvedLimits, Source
from libvgpu.errors import ConfigError
from libvgpu.limits import ContainerLimits, DeviceLimit, Family

ASK = Request(EnvironBuilder().get_environ())


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch() -> ConfigWatch:
    text = ConfigText("/etc/vgpu/a100", "version: v1\n", "a100", "default config")
    return ConfigWatch(ConfigSource(Path("/etc/vgpu")), text, parse_config(text.text))


@pytest.fixture
def registered() -> dict[str, float | None]:
    return {"nvidia.com/vgpu-core": 5.0, "nvidia.com/vgpu-memory": 6.0}


@pytest.fixture
def state(watch: ConfigWatch, registered: dict[str, float | None], clock: Clock) -> AgentState:
    device = DeviceLimit("GPU-0", 1 << 30)
    asked = ContainerLimits("a", Family.VGPU, (device,))
    core = Origin(Source.RULE, "limits[0] on line 4")
    origins = DeviceOrigins(core, Origin(Source.REQUEST), Origin(Source.SHARING))
    resolved = ResolvedLimits(asked, asked, (origins,), RaiseUnits(), None, None, "request")
    node = SimpleNamespace(
        mps_gpus=lambda: {"GPU-0": True},
        unhealthy={"GPU-1": "XID 79"},
        left_out={"3": "NVML says: Unknown Error"},
        driver_problem="",
        draining={"GPU-2": "mps until 1 slices have ended"},
        layout=Layout("nvidia.com", (), withheld=(CUT,), unmatched=("$.sharing.fractional[0]",)),
        gpus=(),
        held=with_given({}, "nvidia.com/gpu", ["GPU-4"], 0.0),
    )
    allocation = Allocation("a", Family.VGPU, "GPU-0", 1 << 30, owner=Owner("ns", "pod", "c"))
    service = SimpleNamespace(
        state=node, resolved=lambda: [(allocation, resolved)], podresources_problem="silent"
    )
    return AgentState(
        Identity("n1", "abc"),
        watch,
        service,  # type: ignore[arg-type]
        lambda: registered,
        label_problem=lambda: "nobody tells",
        clock=clock,
    )


CUT = Withheld(Gpu(3, "GPU-3", "test", 1 << 34), "it is in MIG mode")


def test_it_is_healthy_while_its_loop_turns(state: AgentState, clock: Clock) -> None:
    clock.now_s += LOOP_LATE_S
    assert state.healthz(ASK).status_code == 200

    clock.now_s += 1
    late = state.healthz(ASK)
    assert late.status_code == 503
    assert (
        late.get_data()
        == f"the agent's main loop has not come round for {LOOP_LATE_S + 1:.0f} s\n".encode()
    )

    state.turned()
    assert state.healthz(ASK).status_code == 200


def test_it_is_not_healthy_while_a_thread_that_follows_the_gpus_is_late(
    watch: ConfigWatch, clock: Clock
) -> None:
    beats = Heartbeats(clock)
    service: Any = SimpleNamespace()
    state = AgentState(
        Identity("n1", "abc"), watch, service, dict, clock=clock, helper_problem=beats.problem
    )
    turned = beats.of("the health of GPUs")
    clock.now_s += 2 * HELPER_LATE_S
    state.turned()
    assert state.healthz(ASK).status_code == 200, "it does not run yet"

    turned()
    clock.now_s += HELPER_LATE_S
    state.turned()
    assert state.healthz(ASK).status_code == 200
    clock.now_s += 1
    late = state.healthz(ASK)
    assert late.status_code == 503
    assert late.get_data() == (
        b"the agent's thread for the health of GPUs has not come round for 61 s\n"
    )

    turned()
    assert state.healthz(ASK).status_code == 200


def test_it_is_ready_once_every_resource_is_registered(
    state: AgentState, registered: dict[str, float | None]
) -> None:
    assert state.readyz(ASK).status_code == 200

    registered["nvidia.com/vgpu-memory"] = None

    answer = state.readyz(ASK)
    assert answer.status_code == 503
    assert answer.get_data() == b"not registered with the kubelet: nvidia.com/vgpu-memory\n"


def test_a_rejected_config_shows_with_its_reason_and_keeps_it_ready(
    state: AgentState, watch: ConfigWatch
) -> None:
    before = state.state()["config"]
    watch.reject(ConfigError("line 2: no", "say yes"))

    told = state.state()["config"]

    assert (before["error"], before["hint"]) == (None, None)
    assert told == before | {"error": "line 2: no", "hint": "say yes"}
    assert told["path"] == "/etc/vgpu/a100"
    assert (told["name"], told["chosen_by"], told["is_kept"]) == ("a100", "default config", False)
    assert told["label_problem"] == "nobody tells"
    assert state.readyz(ASK).status_code == 200


def test_the_state_names_resources_build_and_mps_gpus(
    state: AgentState, registered: dict[str, float | None]
) -> None:
    registered["nvidia.com/vgpu-memory"] = None

    told = state.state()

    assert told["resources"] == [
        {"name": "nvidia.com/vgpu-core", "registered_at": 5.0},
        {"name": "nvidia.com/vgpu-memory", "registered_at": None},
    ]
    assert (told["agent"]["node"], told["shim_build"], told["mps_gpus"]) == ("n1", "abc", ["GPU-0"])
    assert told["loop_problem"] is None


def test_it_says_how_the_gpus_are_and_where_limits_come_from(state: AgentState) -> None:
    said = state.state()

    assert said["mps_gpus"] == ["GPU-0"]
    assert said["unhealthy_gpus"] == {"GPU-1": "XID 79"}
    assert said["withheld_gpus"] == {"GPU-3": "it is in MIG mode"}
    assert said["unmatched_entries"] == ["sharing.fractional[0]"]
    assert said["devices"] == [{"resource": "nvidia.com/gpu", "id": "GPU-4", "owner": ""}]
    assert said["left_out_gpus"] == {"3": "NVML says: Unknown Error"}
    assert said["driver_problem"] == ""
    assert said["draining_gpus"] == {"GPU-2": "mps until 1 slices have ended"}
    (origins,) = said["allocations"]
    assert origins == {
        "allocation": "a",
        "owner": "ns/pod/c",
        "shim_build": "",
        "devices": [
            {
                "gpu": "GPU-0",
                "asked_core_percent": 100,
                "asked_memory_bytes": 1 << 30,
                "core": "limits[0] on line 4",
                "memory": "request",
                "compute": "sharing",
            }
        ],
    }
