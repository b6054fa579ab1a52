"""A config edit that changes how GPUs are shared: the agent is not restarted."""

import logging
from pathlib import Path

import pytest

from deviceplugin.model.units import gpu_of
from deviceplugin.mps.state_files import read_wanted
from deviceplugin.testing import AdmissionFailed, AdmittedPod
from support.node.in_process import (
    CONFIG,
    GIB,
    MPS_GPU,
    RESOURCES,
    InProcessNode,
    only_device,
    running_node,
)
from support.waiting import PATIENCE_S, wait_until
from vgpuctl.__main__ import main
from vgpuctl.agent_client import agent_report, metrics_page
from vgpuctl.doctor import agent_checks
from vgpuctl.doctor.finding import WARN

pytestmark = pytest.mark.usefixtures("in_world")

MPS_CORE, MPS_MEMORY, VGPU_CORE, VGPU_MEMORY = RESOURCES
GPU = "nvidia.com/gpu"
DRAINS = "GPU draining, its sharing changes when its slices have ended"
VGPU_ONLY = "version: v1\nsharing:\n  fractional:\n  - {{family: vgpu, devices: {}}}\n"


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "deviceplugin")
    return caplog


def shares(*entries: str, more: str = "") -> str:
    rows = "".join(f"  - {{{entry}}}\n" for entry in entries)
    return f"version: v1\nsharing:\n  fractional:\n{rows}{more}"


def edit(node: InProcessNode, text: str) -> None:
    new = node.config.with_name("new.yaml")
    new.write_text(text)
    new.rename(node.config)  # whole, as a ConfigMap volume does it


def offered(node: InProcessNode) -> dict[str, int]:
    """Healthy units by resource; resources without any are left out."""
    return {name: count for name, count in node.kubelet.allocatable().items() if count}


def under_mps(node: InProcessNode) -> set[str]:
    """What the agent says to the runner of the MPS daemons."""
    wanted = read_wanted(node.run_dir)
    return set(wanted.gpus) if wanted else set()


def healthy(node: InProcessNode, resource: str, uuid: str) -> set[str]:
    return {u for u in node.kubelet.healthy_units(resource) if gpu_of(u) == uuid}


def listed(node: InProcessNode, resource: str, uuid: str) -> int:
    units = node.kubelet._manager.inventory().get(resource, {})
    return sum(gpu_of(unit) == uuid for unit in units)


def held(pod: AdmittedPod) -> dict[str, set[str]]:
    return {r: set(units) for c in pod.containers for r, units in c.devices.items()}


def directory(node: InProcessNode, pod: AdmittedPod) -> Path:
    answer = next(iter(pod.container("c0").answers.values()))
    host = next(m.host_path for m in answer.mounts if m.container_path == "/run/vgpu/limits")
    return Path(host).parent


def fields(log: pytest.LogCaptureFixture, message: str) -> list[dict[str, object]]:
    return [r.__dict__["fields"] for r in log.records if r.getMessage() == message]


def test_a_gpu_with_slices_drains_and_is_shared_anew_when_the_last_has_ended(
    node: InProcessNode, log: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = [node.admit(f"p{n}", {"mps-core": 20, "mps-memory": 3}) for n in range(2)]
    before = [held(pod) for pod in pods]
    inodes = [(directory(node, pod) / "limits").stat().st_ino for pod in pods]

    edit(node, shares("family: vgpu, devices: all, memoryUnit: 2Gi"))

    # each resource has a list of its own: GPU 1 and 2 are there at once, of GPU 0 what is held
    now = {MPS_CORE: 40, MPS_MEMORY: 6, VGPU_CORE: 200, VGPU_MEMORY: 16}
    wait_until(lambda: offered(node) == now)
    for resource in (MPS_CORE, MPS_MEMORY):
        assert healthy(node, resource, MPS_GPU.uuid) == before[0][resource] | before[1][resource]
    assert listed(node, MPS_CORE, MPS_GPU.uuid) == 100, "free units are withdrawn, not unlisted"
    assert listed(node, VGPU_CORE, MPS_GPU.uuid) == 0
    with pytest.raises(AdmissionFailed):
        node.admit("late", {"mps-core": 1, "mps-memory": 1})
    (drains,) = fields(log, DRAINS)
    assert (drains["gpu"], drains["slices"]) == (MPS_GPU.uuid, 2)
    assert drains["then"] == "vgpu strict by units of 2 GiB"
    report = agent_report(node.run_dir)
    assert report.draining_gpus == {
        MPS_GPU.uuid: "mps by units of 1 GiB until 2 slices have ended, then vgpu strict by units "
        "of 2 GiB"
    }
    assert report.mps_gpus == (MPS_GPU.uuid,)
    assert under_mps(node) == {MPS_GPU.uuid}
    assert [f.level for f in agent_checks.gpus(report)] == [WARN]
    assert main(["status", "--run-dir", str(node.run_dir)]) == 0
    assert "mps (drains)" in capsys.readouterr().out

    for pod, units, inode in zip(pods, before, inodes, strict=True):  # a container restarts
        assert node.limit(pod).memory_limit_bytes == 3 * GIB
        assert held(pod) == units
        assert (directory(node, pod) / "limits").stat().st_ino == inode

    node.kubelet.finish(pods[0])
    wait_until(lambda: healthy(node, MPS_CORE, MPS_GPU.uuid) == before[1][MPS_CORE])
    assert listed(node, VGPU_CORE, MPS_GPU.uuid) == 0, "one slice is left"
    node.kubelet.finish(pods[1])
    wait_until(lambda: offered(node) == {VGPU_CORE: 300, VGPU_MEMORY: 24})

    assert agent_report(node.run_dir).draining_gpus == {}
    assert agent_report(node.run_dir).mps_gpus == ()
    wait_until(lambda: under_mps(node) == set())
    told = fields(log, "GPU sharing changed")
    assert told[-1]["gpu"] == MPS_GPU.uuid
    assert told[-1]["now"] == "vgpu strict by units of 2 GiB"
    assert node.limit(node.admit("new", {"vgpu-core": 9, "vgpu-memory": 5})).memory_limit_bytes == (
        10 * GIB
    )


def test_the_arbiter_of_a_gpu_that_drains_works_on_until_its_slices_end(
    node: InProcessNode, log: pytest.LogCaptureFixture
) -> None:
    pods = [node.admit(f"p{n}", {"vgpu-core": 40, "vgpu-memory": 2}) for n in range(2)]
    uuids = {only_device(directory(node, pod)).uuid for pod in pods}
    wait_until(lambda: {f["gpu"] for f in fields(log, "arbiter started")} == uuids)
    stopped = "arbiter stopped: nobody shares"

    edit(node, shares("family: mps, devices: all, memoryUnit: 1Gi"))
    wait_until(lambda: {f["gpu"] for f in fields(log, DRAINS)} == uuids)

    wait_until(lambda: fields(log, "config in force") != [])  # the arbiters looked just before
    assert fields(log, stopped) == []
    for pod in pods:
        node.kubelet.finish(pod)
    wait_until(lambda: {f["gpu"] for f in fields(log, stopped)} == uuids)


def test_families_that_vanish_end_and_those_that_appear_are_registered(
    monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    # GPUs that no entry names are given whole.
    whole, *sockets = [
        "nvidia.com-gpu.sock",
        *(f"nvidia.com-{f}-{h}.sock" for f in ("mps", "vgpu") for h in ("core", "memory")),
    ]

    def there(node: InProcessNode) -> list[str]:
        return sorted(p.name for p in (node.kubelet_dir / "device-plugins").glob("nvidia*"))

    with running_node(monkeypatch, config=VGPU_ONLY.format("[1]"), in_world=True) as node:
        wait_until(lambda: there(node) == [whole, *sockets[2:]])

        edit(node, shares("family: mps, devices: [0], memoryUnit: 1Gi"))
        node.kubelet.wait_for_resources([MPS_CORE, MPS_MEMORY], PATIENCE_S)
        wait_until(lambda: there(node) == [whole, *sockets[:2]])
        wait_until(lambda: offered(node) == {GPU: 2, MPS_CORE: 100, MPS_MEMORY: 16})
        assert {f["resource"] for f in fields(log, "not offered any more")} == {
            VGPU_CORE,
            VGPU_MEMORY,
        }
        # A list may come before the agent has the answer to its registration.
        wait_until(lambda: all(r.registered_at for r in agent_report(node.run_dir).resources))
        page = metrics_page(node.run_dir)
        assert 'vgpu_allocate_duration_seconds_count{resource="nvidia.com/mps-core"} 0.0' in page
        assert 'vgpu_resource_registered{resource="nvidia.com/mps-core"} 1.0' in page
        assert 'vgpu_resource_registered{resource="nvidia.com/vgpu-core"}' not in page
        assert agent_report(node.run_dir).unheard_resources == ()
        names = [each.name for each in agent_report(node.run_dir).resources]
        assert names == [MPS_CORE, MPS_MEMORY, GPU]

        edit(node, "version: v1\n")
        wait_until(lambda: there(node) == [whole])
        wait_until(lambda: offered(node) == {GPU: 3})

        edit(node, VGPU_ONLY.format("[0, 2]"))
        wait_until(lambda: offered(node) == {GPU: 1, VGPU_CORE: 200, VGPU_MEMORY: 32})
        assert there(node) == [whole, *sockets[2:]]
        node.limit(node.admit("a", {"vgpu-core": 30, "vgpu-memory": 4}))


def test_another_domain_waits_for_a_restart_and_the_rest_does_not(
    node: InProcessNode, log: pytest.LogCaptureFixture
) -> None:
    edit(
        node,
        CONFIG.replace("[1, 2], memoryUnit: 1Gi", "[1, 2], memoryUnit: 2Gi").replace(
            "sharing:", "resourceDomain: example.com\nsharing:"
        ),
    )

    wait_until(lambda: offered(node)[VGPU_MEMORY] == 16)

    with pytest.raises(AdmissionFailed, match=r"failed: nvidia\.com/vgpu-core: 101 is more than"):
        node.admit("a", {"vgpu-core": 101})
    # It is said after everything else is in force.
    (said,) = wait_until(lambda: [m for m in log.messages if "resourceDomain" in m])
    assert "when the agent restarts" in said
    assert set(offered(node)) == set(RESOURCES)
