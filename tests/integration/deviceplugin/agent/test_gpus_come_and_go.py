"""The node's GPUs change under an agent that runs, and nobody restarts it by hand."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from deviceplugin.model.gpus import Gpu, GpuListing
from deviceplugin.model.units import gpu_of
from deviceplugin.pages.state import AgentReport
from libvgpu.errors import DriverReplacedError, InventoryError
from support.node.in_process import (
    GIB,
    MPS_GPU,
    RESOURCES,
    SPARE_GPU,
    VGPU_GPU,
    InProcessNode,
    running_node,
    wait_until_lost,
)
from support.waiting import wait_until
from vgpuctl.agent_client import agent_report
from vgpuctl.doctor import agent_checks

MPS_CORE, MPS_MEMORY, VGPU_CORE, VGPU_MEMORY = RESOURCES
NEW_GPU = Gpu(1, "GPU-dddddddd-0000-0000-0000-000000000003", "test", 16 * GIB)
ALL_VGPU = "version: v1\nsharing: {fractional: [{family: vgpu}]}\n"
WAITING = "flags: {failOnInitError: false}\n"
NO_DRIVER = InventoryError("the GPUs of this node cannot be listed: NVML says Driver Not Loaded")
REPLACED = DriverReplacedError("NVML says Driver/library version mismatch")


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "deviceplugin")
    return caplog


@contextmanager
def node_with(
    monkeypatch: pytest.MonkeyPatch, found: GpuListing | InventoryError, config: str
) -> Iterator[InProcessNode]:
    def make(base: Path) -> InProcessNode:
        node = InProcessNode(base)
        node.inventory.found = found
        # What `running_node` waits for is only there where a GPU is.
        monkeypatch.setattr(node, "wait_registered", lambda resources=None: None)
        return node

    with running_node(monkeypatch, make, config, in_world=True) as node:
        wait_until(lambda: is_asked(node), "the agent answers")
        yield node


def is_asked(node: InProcessNode) -> bool:
    if node.failure is not None:
        raise node.failure
    try:
        agent_report(node.run_dir)
    except Exception:
        return False
    return True


def offered(node: InProcessNode, resource: str = VGPU_CORE) -> dict[str, int]:
    """Healthy units by GPU."""
    found: dict[str, int] = {}
    for unit in node.kubelet.healthy_units(resource):
        found[gpu_of(unit)] = found.get(gpu_of(unit), 0) + 1
    return found


def offers_whole(node: InProcessNode, *gpus: Gpu) -> bool:
    """Returns whether nothing but these GPUs is offered, in both resources."""
    return all(
        offered(node, resource) == {gpu.uuid: units for gpu in gpus}
        for resource, units in ((VGPU_CORE, 100), (VGPU_MEMORY, 16))
    )


def report(node: InProcessNode) -> AgentReport:
    return agent_report(node.run_dir)


def said(log: pytest.LogCaptureFixture, message: str) -> bool:
    return any(record.getMessage() == message for record in log.records)


def test_a_replaced_gpu_is_shared_and_slices_of_the_old_one_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = "version: v1\nsharing: {fractional: [{family: vgpu, devices: [1]}]}\n"
    with node_with(monkeypatch, GpuListing((MPS_GPU, VGPU_GPU)), config) as node:
        wait_until(lambda: offers_whole(node, VGPU_GPU))
        pod = node.admit("old", {"vgpu-core": 30, "vgpu-memory": 4})

        node.inventory.found = GpuListing((MPS_GPU, NEW_GPU))

        # What the pod has stays listed, what it has not is of a GPU that is not there.
        wait_until(lambda: offered(node) == {VGPU_GPU.uuid: 30, NEW_GPU.uuid: 100})
        wait_until(lambda: offered(node, VGPU_MEMORY) == {VGPU_GPU.uuid: 4, NEW_GPU.uuid: 16})
        assert node.limit(pod).uuid == VGPU_GPU.uuid
        assert node.limit(node.admit("new", {"vgpu-core": 80, "vgpu-memory": 4})).uuid == (
            NEW_GPU.uuid
        )
        node.kubelet.finish(pod)
        wait_until(lambda: offers_whole(node, NEW_GPU))


def test_a_new_gpu_that_the_config_does_not_fit_changes_nothing_and_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = "version: v1\nsharing: {fractional: [{family: vgpu, memoryUnit: 8Gi}]}\n"
    small = Gpu(1, NEW_GPU.uuid, "test", 4 * GIB)
    with node_with(monkeypatch, GpuListing((MPS_GPU,)), config) as node:
        wait_until(lambda: offered(node) == {MPS_GPU.uuid: 100})

        node.inventory.found = GpuListing((MPS_GPU, small))

        wait_until(lambda: "does not fit GPU 1" in (report(node).config.error or ""))
        assert offered(node) == {MPS_GPU.uuid: 100}
        node.inventory.found = GpuListing((MPS_GPU, NEW_GPU))
        wait_until(lambda: offered(node) == {MPS_GPU.uuid: 100, NEW_GPU.uuid: 100})
        assert report(node).config.error is None


def test_an_edit_that_names_another_index_goes_by_those_of_nvml(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = "version: v1\nsharing: {fractional: [{family: vgpu, devices: [1]}]}\n"
    without = GpuListing((replace(VGPU_GPU, index=0), replace(SPARE_GPU, index=1)))
    with node_with(monkeypatch, GpuListing((MPS_GPU, VGPU_GPU, SPARE_GPU)), config) as node:
        wait_until(lambda: offers_whole(node, VGPU_GPU))
        node.stop_agent()
        node.inventory.found = without
        node.start_agent()
        wait_until(lambda: offers_whole(node, VGPU_GPU))

        node.config.write_text(config.replace("[1]", "[0, 1]"))
        wait_until(lambda: offers_whole(node, VGPU_GPU, SPARE_GPU))
        assert report(node).config.error is None

        node.config.write_text(config)
        wait_until(lambda: offers_whole(node, SPARE_GPU))


def test_an_agent_waits_for_a_driver_where_the_config_says_so(
    monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    with node_with(monkeypatch, NO_DRIVER, ALL_VGPU + WAITING) as node:
        wait_until(lambda: report(node).driver_problem == NO_DRIVER.message)
        assert said(log, "the NVIDIA driver does not answer, the agent waits for it")
        assert "the agent waits for the driver" in agent_checks.gpus(report(node))[0].message
        assert [r.name for r in report(node).resources] == []

        node.inventory.found = GpuListing((MPS_GPU,))

        wait_until(lambda: [r.name for r in report(node).resources] == [VGPU_CORE, VGPU_MEMORY])
        wait_until(lambda: offers_whole(node, MPS_GPU))
        assert report(node).driver_problem == ""
        assert said(log, "the NVIDIA driver answers again")
        node.admit("a", {"vgpu-core": 60, "vgpu-memory": 10})


@pytest.mark.parametrize(
    ("found", "config", "kind"),
    [
        (NO_DRIVER, ALL_VGPU, InventoryError),
        (NO_DRIVER, ALL_VGPU + "flags: {failOnInitError: true}\n", InventoryError),
        (REPLACED, ALL_VGPU, DriverReplacedError),
        # To wait would not help: this process has the wrong library.
        (REPLACED, ALL_VGPU + WAITING, DriverReplacedError),
    ],
)
def test_an_agent_without_a_driver_ends(
    monkeypatch: pytest.MonkeyPatch,
    found: InventoryError,
    config: str,
    kind: type[InventoryError],
) -> None:
    with pytest.raises(kind, match="NVML says"), node_with(monkeypatch, found, config):
        pass


def test_a_replaced_driver_ends_the_agent_so_that_another_begins(
    monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    here = GpuListing((MPS_GPU,))
    with node_with(monkeypatch, here, ALL_VGPU) as node:
        wait_until(lambda: offers_whole(node, MPS_GPU))
        pod = node.admit("stays", {"vgpu-core": 60, "vgpu-memory": 10})

        node.inventory.found = REPLACED
        wait_until(lambda: node.failure is not None)

        assert node.failure is REPLACED
        ending = next(r for r in log.records if "driver was replaced" in r.getMessage())
        assert ending.notice.reason.value == "DriverReplaced"  # type: ignore[attr-defined]
        wait_until_lost(node.kubelet)
        node.failure, node.inventory.found = None, here
        node.start_agent()
        wait_until(lambda: offers_whole(node, MPS_GPU))
        assert node.limit(pod).core_percent == 60


def test_an_index_means_the_same_gpu_after_a_restart_without_the_first_one(
    monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    config = (
        "version: v1\n"
        "sharing:\n"
        "  fractional: [{family: vgpu, devices: [1]}]\n"
        "  timeSlicing: {resources: [{name: gpu, replicas: 2, devices: [0], rename: half}]}\n"
    )
    there = GpuListing((MPS_GPU, VGPU_GPU, SPARE_GPU))
    without = GpuListing((replace(VGPU_GPU, index=0), replace(SPARE_GPU, index=1)))

    def serves(half: Gpu | None) -> bool:
        halves = {f"{half.uuid}::{n}" for n in range(2)} if half is not None else set()
        return (
            offers_whole(node, VGPU_GPU)
            and set(node.kubelet.healthy_units("nvidia.com/gpu")) == {SPARE_GPU.uuid}
            and set(node.kubelet.healthy_units("nvidia.com/half")) == halves
        )

    with node_with(monkeypatch, there, config) as node:
        wait_until(lambda: serves(MPS_GPU))
        pod = node.admit("stays", {"vgpu-core": 30, "vgpu-memory": 4})
        node.stop_agent()
        log.clear()

        node.inventory.found = without
        node.start_agent()

        wait_until(lambda: serves(None))
        assert node.limit(pod).uuid == VGPU_GPU.uuid
        assert not said(log, "GPU draining, its sharing changes when its slices have ended")
        # An edit of something else changes no index, and neither does the next restart.
        node.config.write_text(config + "limits: [{core: 20}]\n")
        wait_until(lambda: node.limit(pod).core_percent == 20)
        node.stop_agent()
        node.start_agent()
        wait_until(lambda: serves(None))
        node.inventory.found = there
        wait_until(lambda: serves(MPS_GPU))
        assert not said(log, "GPU draining, its sharing changes when its slices have ended")


def test_a_lost_gpu_may_be_named_again_and_is_said_to_be_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = "version: v1\nsharing: {fractional: [{family: vgpu, devices: [0, 1]}]}\n"
    there = GpuListing((MPS_GPU, VGPU_GPU))
    with node_with(monkeypatch, there, config) as node:
        wait_until(lambda: offers_whole(node, MPS_GPU, VGPU_GPU))
        node.stop_agent()
        node.inventory.found = GpuListing((replace(VGPU_GPU, index=0),))
        node.config.write_text(config.replace("[0, 1]", "[1]"))
        node.start_agent()
        wait_until(lambda: offers_whole(node, VGPU_GPU))

        node.config.write_text(config)

        lost = f"GPU 0 was {MPS_GPU.uuid} when the config was accepted"
        wait_until(lambda: lost in (report(node).config.error or ""))
        assert offers_whole(node, VGPU_GPU)
        node.inventory.found = there
        wait_until(lambda: offers_whole(node, MPS_GPU, VGPU_GPU))
