"""When the agent is healthy and ready, and what it says of its config."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import fields, replace
from werkzeug.test import EnvironBuilder
from werkzeug.wrappers import Request

from deviceplugin.config.loading import parse_config
from deviceplugin.config.reload import ConfigWatch
from deviceplugin.config.source import ConfigSource
from deviceplugin.heartbeats import HELPER_LATE_S, Heartbeats
from deviceplugin.http import agent_state
from deviceplugin.http.agent_state import LOOP_LATE_S, AgentState, Identity
from deviceplugin.model.agent_config import ConfigText
from deviceplugin.model.allocations import Allocation, Owner
from deviceplugin.model.gpus import Gpu
from deviceplugin.model.held_devices import HeldDevice, with_given
from deviceplugin.pages.state import (
    ReportedAllocation,
    ReportedDevice,
    ReportedGpu,
    ReportedInjection,
)
from deviceplugin.policy.devices.device_resources import Withheld
from deviceplugin.policy.devices.layout import Layout
from deviceplugin.policy.devices.mig_layout import MigDifference
from deviceplugin.policy.limits.resolver import DeviceOrigins, Origin, ResolvedLimits, Source
from deviceplugin.policy.limits.rules import RaiseUnits
from deviceplugin.watch.report import (
    ChargedMemory,
    DamagedUsage,
    ForgedTime,
    SeenProcess,
    WatchFindings,
)
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
def service() -> Any:
    device = DeviceLimit("GPU-0", 1 << 30)
    asked = ContainerLimits("a", Family.VGPU, (device,))
    core = Origin(Source.RULE, "limits[0] on line 4")
    origins = DeviceOrigins(core, Origin(Source.REQUEST), Origin(Source.SHARING))
    resolved = ResolvedLimits(asked, None, asked, (origins,), RaiseUnits(), None, None, "request")
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
    owner = Owner("ns", "pod", "c")
    allocation = Allocation("a", Family.VGPU, "GPU-0", 1 << 30, owner=owner, shim_build="old")
    return SimpleNamespace(
        state=node, resolved=lambda: [(allocation, resolved)], podresources_problem="silent"
    )


@pytest.fixture
def state(
    watch: ConfigWatch, service: Any, registered: dict[str, float | None], clock: Clock
) -> AgentState:
    return AgentState(
        Identity("n1", "abc"),
        watch,
        service,
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
        == f"the agent's main loop has not run for {LOOP_LATE_S + 1:.0f} s\n".encode()
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
    assert late.get_data() == (b"the agent's thread for the health of GPUs has not run for 61 s\n")

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
    before = state.state().config
    watch.reject(ConfigError("line 2: no", "say yes"))

    told = state.state().config

    assert (before.error, before.hint) == (None, None)
    assert told == replace(before, error="line 2: no", hint="say yes")
    assert told.path == "/etc/vgpu/a100"
    assert (told.name, told.chosen_by, told.is_kept) == ("a100", "default config", False)
    assert told.label_problem == "nobody tells"
    assert state.readyz(ASK).status_code == 200


def test_the_state_names_resources_build_and_mps_gpus(
    state: AgentState, registered: dict[str, float | None]
) -> None:
    registered["nvidia.com/vgpu-memory"] = None

    told = state.state()

    assert [(each.name, each.registered_at) for each in told.resources] == [
        ("nvidia.com/vgpu-core", 5.0),
        ("nvidia.com/vgpu-memory", None),
    ]
    assert (told.agent.node, told.shim_build, told.mps_gpus) == ("n1", "abc", ("GPU-0",))
    assert told.loop_problem is None


def test_it_says_how_the_gpus_are_and_where_limits_come_from(state: AgentState) -> None:
    said = state.state()

    assert said.unhealthy_gpus == {"GPU-1": "XID 79"}
    assert said.withheld_gpus == {"GPU-3": "it is in MIG mode"}
    assert said.unmatched_entries == ("sharing.fractional[0]",)
    assert said.devices == (ReportedDevice("nvidia.com/gpu", "GPU-4"),)
    assert said.left_out_gpus == {"3": "NVML says: Unknown Error"}
    assert said.driver_problem == ""
    assert said.draining_gpus == {"GPU-2": "mps until 1 slices have ended"}
    (origins,) = said.allocations
    device = ReportedGpu("GPU-0", "limits[0] on line 4", "request", "sharing", 100, 1 << 30)
    assert origins == ReportedAllocation("a", "ns/pod/c", (device,), "old")


def unsaid(form: Struct, path: str = "$") -> Iterator[str]:
    """Yields the keys of a page that have the value which they would have if nobody wrote them."""
    for field in fields(form):
        value, where = getattr(form, field.name), f"{path}.{field.encode_name}"
        default = {} if field.default_factory is dict else field.default
        if field.name != "version" and value == default:
            yield where
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, Struct):
                yield from unsaid(each, where)


def test_no_key_of_the_page_is_forgotten_where_it_is_written(
    watch: ConfigWatch, service: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = Owner("ns", "pod", "c")
    process = SeenProcess("GPU-0", 7, 1, "python", 1, "a", owner, how="by a copy of the driver")
    damaged = (DamagedUsage("a", owner, "has cut it"),)
    charged = (ChargedMemory("GPU-0", "a", owner, 5),)
    forged = (ForgedTime("GPU-0", "a", owner, 20),)
    findings = WatchFindings("no pids", "kill", (process,), (process,), damaged, charged, forged, 1)
    injection = ReportedInjection(("cdi-cri",), "so it is", ("nvidia",), "/spec", ("no driver",))
    difference = MigDifference(Gpu(5, "GPU-5", "test", 1 << 34), (), "")
    monkeypatch.setattr(agent_state, "mig_differences", lambda *_: [difference])
    service.state.held = {("r", "GPU-4"): HeldDevice("r", "GPU-4", owner, 0.0)}
    service.state.driver_problem = "NVML does not answer"
    watch.is_kept = True
    watch.skip(ConfigError("line 2: no", "say yes"))
    state = AgentState(
        Identity("n1", "abc"), watch, service, lambda: {"nvidia.com/vgpu-core": 5.0},
        lambda: findings, lambda: "nobody tells", lambda: injection, clock,
        pods_problem=lambda: "403", publish_problem=lambda: "403", sees_node_pids=False,
        unheard=lambda: ["nvidia.com/vgpu-core"],
    )  # fmt: skip
    clock.now_s += 2 * LOOP_LATE_S

    assert list(unsaid(state.state())) == []
