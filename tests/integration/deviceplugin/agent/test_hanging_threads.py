"""What hangs in an agent of a world is named by ``/healthz``, and blinds nobody else."""

import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deviceplugin import runtime
from deviceplugin.inventory import gpu_watch
from deviceplugin.inventory.health_watch import HealthWatch
from deviceplugin.kube.event_sender import EventSender
from deviceplugin.kube.inventory_lease import InventoryLease
from deviceplugin.kube.list_watch import Follower
from deviceplugin.kube.pod_labels import PodLabels
from deviceplugin.watch.watcher import MemoryWatch
from libvgpu.errors import VgpuError
from support import ROOT
from support.world.histories import CORE, MEMORY, History, Life
from support.world.lives import CONFIG, GPUS, small_shim
from support.world.node import WorldNode

LABELS = CONFIG + "limits: [{match: {podLabels: {tier: batch}}, core: 10}]\n"
#: Longer than a watch of the API server lasts.
LONG_S = 700.0
#: Files whose threads wait for a container or for NVML, and a tool of tests.
WITHOUT_HEARTBEAT = {"held_files.py", "nvml_calls.py", "event_listener.py", "plugin_client.py"}


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], WorldNode]]:
    nodes: list[WorldNode] = []
    with small_shim(monkeypatch), tempfile.TemporaryDirectory(prefix="vgpu-") as base:

        def start() -> WorldNode:
            nodes.append(WorldNode(Path(base), 1, LABELS, GPUS, monkeypatch))
            nodes[0].wait_registered([CORE, MEMORY])
            history = History(nodes[0], 1, Life())
            history.admit([], [{CORE: 10, MEMORY: 1}])
            nodes[0].config.write_text("version: v9\n")  # an Event says that it is not taken
            return nodes[0]

        yield start
        nodes[0].close()


@pytest.mark.parametrize(
    ("owner", "method", "name"),
    [
        (EventSender, "_tell", "Kubernetes Events"),
        (PodLabels, "_labels", "labels of pods"),
        (Follower, "_watch", "the pods of this node"),
        (InventoryLease, "_publish", "the node's inventory"),
        (gpu_watch, "list_gpus", "the list of GPUs"),
        (HealthWatch, "_follow", "the health of GPUs"),
        (MemoryWatch, "look", "processes on GPUs"),
    ],
)
def test_a_thread_that_hangs_is_named_with_how_long_it_does(
    node: Callable[[], WorldNode],
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    method: str,
    name: str,
) -> None:
    monkeypatch.setattr(owner, method, lambda *_: runtime.event().wait())
    hanging = node()

    hanging.pass_time(LONG_S)

    said = hanging.health()
    assert re.fullmatch(f"the agent's thread for {name} has not run for [0-9]+ s\n", said), said


def test_threads_that_wait_for_work_are_not_late(node: Callable[[], WorldNode]) -> None:
    well = node()

    well.pass_time(LONG_S)

    assert well.is_healthy()


def test_each_thread_has_a_heartbeat() -> None:
    begin = [
        path
        for path in (ROOT / "deviceplugin").rglob("*.py")
        if "runtime.thread(" in path.read_text() and path.name not in WITHOUT_HEARTBEAT
    ]

    assert len(begin) > 5
    for path in begin:
        assert re.search(r"self\.(beat|_beat|_turned)\(\)", path.read_text()), path


def test_a_call_of_nvml_that_never_returns_blinds_nobody(node: Callable[[], WorldNode]) -> None:
    """Of three GPUs a call for the second hangs; then the third is lost, and comes back."""
    seen = node()
    nvml, (_, second, third) = seen.inventory, GPUS

    def offered(gpus: int) -> None:
        seen.wait_until(lambda: seen.kubelet.allocatable()[CORE] == 100 * gpus, f"{gpus} GPUs")
        assert seen.is_healthy()

    nvml.hanging.append(second)
    offered(2)
    nvml.lost.append(third)
    offered(1)
    nvml.lost.clear()
    offered(2)
    seen.pass_time(LONG_S)
    offered(2)
    nvml.recover()
    offered(3)


def test_labels_are_put_into_force_again_where_that_failed(
    node: Callable[[], WorldNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, calls = PodLabels.start, list[int]()

    def failing(labels: PodLabels, changed: Callable[[], None]) -> None:
        def once() -> None:
            calls.append(1)
            if len(calls) == 1:
                raise VgpuError("no space left")
            changed()

        begin(labels, once)

    monkeypatch.setattr(PodLabels, "start", failing)
    seen = node()

    seen.wait_until(lambda: len(calls) == 2, "labels are put into force again")
    assert seen.is_healthy()
