"""The server of one resource when the kubelet asks for many things at a time."""

import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from deviceplugin.core.offers import fraction_offer
from deviceplugin.kubelet.plugin_server import PluginServer
from deviceplugin.model.allocations import Owner
from deviceplugin.model.units import Half
from deviceplugin.mps.keeper import MOST_WAITING, MpsKeeper
from deviceplugin.store.container_answer import Answer
from deviceplugin.testing.plugin_client import Plugin
from libvgpu.limits import Family
from support.waiting import PATIENCE_S, wait_until


class SlowStarts:
    """A service whose containers wait for a GPU free of MPS until ``ready`` is set."""

    def __init__(self, run_dir: Path) -> None:
        self.layout = SimpleNamespace(resource_domain="nvidia.com")
        self.admission = self.starts = self.state = self
        self.ready = threading.Event()
        self.waiting = 0
        self._counting = threading.Lock()
        self._keeper = MpsKeeper(run_dir / "config.yaml", run_dir, False, self, PATIENCE_S)

    def mps_gpus(self) -> dict[str, bool]:
        return {} if self.ready.is_set() else {"GPU-a": True}

    def tenants_on(self, uuid: str) -> Sequence[tuple[str, Owner | None]]:
        return []

    def pre_start(self, family: Family, half: Half, units: list[str]) -> None:
        with self._counting:
            self.waiting += 1
        self._keeper.wait(["GPU-a"], under_mps=False)

    def prefer(
        self, family: Family, half: Half, available: list[str], must: list[str], count: int
    ) -> list[str]:
        return available[:count]

    def allocate(self, family: Family, half: Half, units: list[str]) -> Answer:
        return Answer(envs={"GIVEN": units[0]})

    def wake(self) -> None:
        pass

    def wait_for_change(self, revision: int, seconds: float, over: Any) -> bool:
        return False

    def units(self, family: Family, half: Half) -> tuple[int, list[Any]]:
        return 1, []


@pytest.fixture
def service(tmp_path: Path) -> SlowStarts:
    return SlowStarts(tmp_path)


@pytest.fixture
def plugin(service: SlowStarts) -> Iterator[Plugin]:
    with tempfile.TemporaryDirectory(prefix="vgpu-", dir="/tmp") as folder:
        offer = fraction_offer(service, Family.MPS, Half.CORE)  # type: ignore[arg-type]
        server = PluginServer(offer, Path(folder))
        server.start()
        made = Plugin(server.resource, server.socket, lambda: None, lambda: None)
        made.start()
        try:
            yield made
        finally:
            service.ready.set()
            made.close()
            server.stop()


def test_containers_that_wait_at_their_start_leave_room_to_admit_pods(
    service: SlowStarts, plugin: Plugin
) -> None:
    most = MOST_WAITING
    with ThreadPoolExecutor(most) as kubelet:
        waiting = [kubelet.submit(plugin.pre_start, [f"unit-{n}"]) for n in range(most)]
        wait_until(lambda: service.waiting == most, "as many starts as may wait")

        assert plugin.allocate(["unit-9"]).envs == {"GIVEN": "unit-9"}
        with pytest.raises(grpc.RpcError) as refused:
            plugin.pre_start(["unit-8"])
        service.ready.set()
        for each in waiting:
            each.result()
        plugin.pre_start(["unit-8"])  # as the kubelet tries again

    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert refused.value.details() == (
        f"{most} other containers wait for MPS of their GPU, and no more may at a time; the "
        "kubelet tries this one again"
    )


def test_a_longest_name_is_served_in_a_directory_that_leaves_it_no_room(
    service: SlowStarts,
) -> None:
    with tempfile.TemporaryDirectory(prefix="vgpu-", dir="/tmp") as folder:
        deep = Path(folder) / ("k" * 40)
        deep.mkdir()
        offer = fraction_offer(service, Family.MPS, Half.CORE)  # type: ignore[arg-type]
        server = PluginServer(replace(offer, name=f"nvidia.com/{'g' * 63}"), deep)
        server.start()
        try:
            assert server.socket.is_socket()
        finally:
            server.stop()
