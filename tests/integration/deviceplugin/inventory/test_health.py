"""An unhealthy GPU is not offered, whoever has units of it; once it is healthy, it is again."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from deviceplugin.inventory.gpu_watch import LIST_EVERY_S
from deviceplugin.testing import ContainerManifest, PodManifest
from support import warm
from support.node.simulated import CONFIG, CORE, MEMORY, SimulatedNode
from support.sim.nvml_programs import XID, lose, raise_event
from support.waiting import wait_until

EVERY_RESOURCE = [
    *(f"nvidia.com/{f}-{h}" for f in ("mps", "vgpu") for h in ("core", "memory")),
    "nvidia.com/gpu",
]
EVERY_SHARING = """\
version: v1
sharing:
  fractional: [{family: mps, devices: [0]}, {family: vgpu, devices: [1]}]
  timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 5}]}
"""
SHARED = "version: v1\nsharing: {{fractional: [{{family: vgpu, devices: {}}}]}}\n"
A_PROGRAMS_OWN_FAULT, DOUBLE_BIT_ERROR = 31, 48
#: An agent that waits less long for a call of NVML.
HASTY = """\
from deviceplugin.inventory import nvml_calls
nvml_calls.CALL_DEADLINE_S = 3.0
from deviceplugin.__main__ import main
main()
"""


class SickNode(SimulatedNode):
    """The agent on simulated GPUs that fail."""

    def __init__(
        self,
        base: Path,
        config: str = CONFIG,
        resources: Sequence[str] = (CORE, MEMORY),
        gpus: int = 2,
        program: Sequence[str] = ("-m", "deviceplugin"),
    ) -> None:
        super().__init__(base, f"t4*{gpus}", config, resources, program=program)

    def edit(self, text: str) -> None:
        new = self.base / "new.yaml"
        new.write_text(text)
        new.rename(self.base / "config.yaml")

    def metrics(self) -> str:
        return self.page("/metrics")

    def healthy_cores(self) -> list[int]:
        """Returns how many healthy core units each GPU has."""
        units = self.kubelet.healthy_units(CORE)
        return [sum(unit.startswith(d.uuid) for unit in units) for d in self.machine.devices]

    def healthy(self, index: int) -> dict[str, int]:
        """Returns how many healthy units of each resource a GPU has."""
        uuid = self.machine.devices[index].uuid
        return {
            resource: sum(unit.startswith(uuid) for unit in self.kubelet.healthy_units(resource))
            for resource in self.resources
        }

    def doctor(self) -> str:
        words = ["-m", "vgpuctl", "doctor", "--run-dir", str(self.base / "r")]
        done = warm.run(words, self.machine.environment(os.environ))
        assert done.returncode == 1
        return done.stdout


@pytest.fixture
def node(short_path: Path) -> Iterator[SickNode]:
    with SickNode(short_path) as node:
        yield node


def inject(node: SickNode, *words: str) -> None:
    environment = node.machine.environment(os.environ)
    warm.run(["-m", "vgpuctl", "sim", "inject", *words], environment).check_returncode()


def test_a_lost_gpu_is_withdrawn_whole_and_offered_again(node: SickNode) -> None:
    asked = ContainerManifest("c", limits={CORE: 30, MEMORY: 4})
    pod = node.kubelet.admit(PodManifest("stays", (asked,)))
    held = pod.containers[0].devices[CORE][0].partition("::")[0]
    lost = [d.uuid for d in node.machine.devices].index(held)
    wanted = [100, 100]
    wanted[lost] = 0

    inject(node, f"{node.base / 'machine'}/{lost}", "lost")
    wait_until(lambda: node.healthy_cores() == wanted)
    # The other resource has a list of its own, and the log line comes after both.
    wait_until(lambda: not any(u.startswith(held) for u in node.kubelet.healthy_units(MEMORY)))
    wait_until(lambda: "GPU unhealthy" in node.log)

    assert f'vgpu_gpu_healthy{{family="vgpu",gpu="{held}",index="{lost}"}} 0.0' in node.metrics()
    unhealthy = f"GPU {held} is unhealthy, so nothing of it is offered: NVML says: GPU is lost"
    wait_until(lambda: unhealthy in node.doctor())
    other = node.kubelet.admit(PodManifest("goes elsewhere", (asked,)))
    assert not other.containers[0].devices[CORE][0].startswith(held)

    inject(node, f"{node.base / 'machine'}/{lost}", "clear")
    wait_until(lambda: node.healthy_cores() == [100, 100])
    wait_until(lambda: "GPU healthy again" in node.log)


def test_an_agent_starts_without_a_gpu_that_is_lost_and_shares_it_when_it_is_back(
    node: SickNode,
) -> None:
    assert node.stop_agent() == 0
    lose(node.machine, 0)

    node.start_agent()

    assert node.healthy_cores() == [0, 100]
    wait_until(lambda: "GPU left out until it works" in node.log)
    assert "vgpu_gpus_left_out 1.0" in node.metrics()
    assert "does not work: NVML says" in node.doctor()
    started = node.log.count("agent started")

    inject(node, f"{node.base / 'machine'}/0", "clear")
    wait_until(lambda: node.healthy_cores() == [100, 100])
    wait_until(lambda: "vgpu_gpus_left_out 0.0" in node.metrics())
    assert node.log.count("agent started") == started
    inject(node, f"{node.base / 'machine'}/0", "lost")  # it is watched like any other
    wait_until(lambda: node.healthy_cores() == [0, 100])


def test_a_lost_gpu_that_the_config_names_is_left_out_and_said(node: SickNode) -> None:
    node.stop_agent()
    lose(node.machine, 0)
    node.edit(SHARED.format("[0, 1]"))

    node.start_agent()

    assert node.healthy_cores() == [0, 100]
    assert "vgpu_config_reload_success 0.0" in node.metrics()
    told = node.doctor()
    assert "GPU 0 does not exist and is left out" in told
    assert "the rest of it is in force" in told
    node.edit(SHARED.format("[0, 1, 2]"))
    wait_until(lambda: "GPU 2 does not exist; this node has" in node.doctor())
    node.edit(SHARED.format("[0, 1]") + "limits: [{core: 50}]\n")
    wait_until(lambda: "rules=1" in node.log)  # as at the start, it goes on without it
    assert node.healthy_cores() == [0, 100]
    inject(node, f"{node.base / 'machine'}/0", "clear")
    wait_until(lambda: node.healthy_cores() == [100, 100])
    wait_until(lambda: "vgpu_config_reload_success 1.0" in node.metrics())


def test_an_error_that_is_disabled_withdraws_nothing_and_others_do(node: SickNode) -> None:
    node.stop_agent()
    node.variables = {
        "DP_DISABLE_HEALTHCHECKS": f"{DOUBLE_BIT_ERROR},often",
        "DP_ENABLE_HEALTHCHECKS": str(A_PROGRAMS_OWN_FAULT),
    }
    node.start_agent()
    assert "DP_DISABLE_HEALTHCHECKS names 'often', which is not an XID" in node.log

    def is_withdrawn() -> bool:
        raise_event(node.machine, 0, XID, DOUBLE_BIT_ERROR)
        raise_event(node.machine, 1, XID, A_PROGRAMS_OWN_FAULT)
        return node.healthy_cores()[1] == 0

    wait_until(is_withdrawn)
    assert node.healthy_cores() == [100, 0]


def test_nothing_is_withdrawn_where_health_is_not_watched(node: SickNode) -> None:
    node.stop_agent()
    node.variables = {"DP_DISABLE_HEALTHCHECKS": "all"}
    node.start_agent()

    inject(node, f"{node.base / 'machine'}/0", "lost")
    time.sleep(LIST_EVERY_S + 2.0)  # an agent that cares would long have said so

    assert node.healthy_cores() == [100, 100]


def test_a_gpu_that_nvml_does_not_answer_for_is_withdrawn_alone_and_the_others_are_followed(
    short_path: Path,
) -> None:
    machine = short_path / "machine"
    with SickNode(short_path, EVERY_SHARING, EVERY_RESOURCE, 4, ("-c", HASTY)) as node:
        try:
            before = [node.healthy(index) for index in range(4)]
            nothing = dict.fromkeys(EVERY_RESOURCE, 0)

            inject(node, f"{machine}/1", "nvml", "all", "hang")
            wait_until(lambda: node.healthy(1) == nothing)
            assert [node.healthy(index) for index in (0, 2, 3)] == [*before[:1], *before[2:]]
            wait_until(lambda: "a call of NVML for it does not return" in node.log)

            inject(node, f"{machine}/0", "lost")
            inject(node, f"{machine}/2", "lost")
            wait_until(lambda: node.healthy(0) == node.healthy(2) == nothing)
            assert node.healthy(3) == before[3]
            assert node.page("/healthz") == "ok\n"

            node.stop_agent()
            node.resources = ["nvidia.com/gpu"]
            node.start_agent()
            wait_until(lambda: node.healthy(3) == {"nvidia.com/gpu": 5})
            wait_until(lambda: "vgpu_gpus_left_out 3.0" in node.metrics())

            inject(node, str(machine), "clear")
            node.resources = EVERY_RESOURCE
            wait_until(lambda: [node.healthy(index) for index in range(4)] == before)
        finally:
            inject(node, str(machine), "clear")


def test_a_gpu_of_whose_memory_nvml_does_not_tell_is_offered_whole_and_watched(
    node: SickNode,
) -> None:
    machine, whole = node.base / "machine", "nvidia.com/gpu"
    node.stop_agent()
    inject(node, f"{machine}/0", "nvml", "nvmlDeviceGetMemoryInfo", "NVML_ERROR_NOT_SUPPORTED")

    node.start_agent()

    assert node.healthy_cores() == [0, 100]
    wait_until(lambda: "NVML does not tell how much memory it has" in node.log)
    node.edit(SHARED.format("[1]"))
    node.resources.append(whole)
    wait_until(lambda: whole in node.kubelet.allocatable() and node.healthy(0)[whole] == 1)
    uuid = node.machine.devices[0].uuid
    assert f'vgpu_gpu_healthy{{family="whole",gpu="{uuid}",index="0"}} 1.0' in node.metrics()
    assert f'vgpu_gpu_memory_total_bytes{{family="whole",gpu="{uuid}"' not in node.metrics()

    inject(node, f"{machine}/0", "lost")
    wait_until(lambda: node.healthy(0)[whole] == 0)
