"""The watch over GPU time: whom it withholds, for how long, and whom it names."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from deviceplugin.model.allocations import Allocation
from deviceplugin.watch.comparison import ComparedAllocation
from deviceplugin.watch.gpu_time import LOOK_CLOSELY_S, TimeSample
from deviceplugin.watch.time_watch import TimeWatch
from libvgpu.arbitration import ArbiterCounters, TenantCounters
from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.sharing_mode import Mode

GPU = "GPU-0"
PERIOD_S = 1 / 6


class Node:
    """Two containers of one GPU, whose processes are busy as a test says, and its arbiter."""

    def __init__(self) -> None:
        self.now_s, self.busy, self.withheld_until_s = 1000.0, {1: 20, 2: 50}, 0.0
        self.obeys, self.asks = True, False
        self.watch = TimeWatch(self, self.read, lambda: self.now_s)
        self.names: set[str] = set()

    def counters(self) -> Mapping[str, ArbiterCounters]:
        mode_ns = dict.fromkeys(Mode, 0) | {Mode.WINDOWS: int(self.now_s * 1e9)}
        tenants = {Path(name): TenantCounters(0, 0, True, 1) for name in ("a", "b")}
        return {GPU: ArbiterCounters(0, 0, 0, 0, Mode.WINDOWS, mode_ns, tenants)}

    def withhold(self, uuid: str, directory: Path, seconds: float) -> bool:
        assert (uuid, directory) == (GPU, Path("a"))
        was_withheld = self.now_s < self.withheld_until_s
        self.withheld_until_s = self.now_s + seconds
        return was_withheld and self.asks

    def read(self, since_us: Mapping[str, int]) -> dict[str, list[TimeSample]]:
        at_us = int(int(self.now_s / PERIOD_S) * PERIOD_S * 1e6)
        if at_us <= since_us[GPU]:
            return {GPU: []}
        is_held = self.obeys and self.now_s - PERIOD_S < self.withheld_until_s
        return {
            GPU: [
                TimeSample(pid, at_us, percent)
                for pid, percent in self.busy.items()
                if percent and not (pid == 1 and is_held)
            ]
        }

    def run(self, seconds: float) -> Iterator[None]:
        watched = {
            name: ComparedAllocation(
                Allocation(name, Family.VGPU, GPU, 1), Path(name), limits, limits
            )
            for name, percent in (("a", 20), ("b", 50))
            for limits in [
                ContainerLimits(name, Family.VGPU, (DeviceLimit(GPU, 1, core_percent=percent),))
            ]
        }
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.watch.follow(watched, {GPU: {1: "a", 2: "b"}})
            self.watch.look()
            self.names |= {each.allocation_id for each in self.watch.forged}
            yield
            self.now_s += LOOK_CLOSELY_S if self.watch.is_suspicious else 1.05

    def pass_time(self, seconds: float) -> float:
        """Returns for what part of a while the first container was withheld."""
        held = [self.now_s < self.withheld_until_s for _ in self.run(seconds)]
        return sum(held) / len(held)


@pytest.fixture
def node() -> Node:
    return Node()


def test_who_keeps_to_his_share_is_left_alone(node: Node) -> None:
    assert node.pass_time(60) == 0
    assert not node.names


def test_one_that_takes_twice_its_share_has_half_of_the_time(node: Node) -> None:
    node.busy[1] = 40

    assert node.pass_time(120) == pytest.approx(0.5, abs=0.1)
    assert not node.names, "it may be owed by its own books, too"


def test_one_that_asks_all_the_while_is_named_and_has_little(node: Node) -> None:
    node.busy[1], node.asks = 40, True

    node.pass_time(5)
    assert node.names == {"a"}
    assert [each.share_percent for each in node.watch.forged] == [20]
    assert node.pass_time(300) > 0.9

    node.busy[1] = 20
    node.pass_time(60)
    assert not node.watch.forged


def test_an_honest_program_that_is_measured_a_little_high_is_not_named(node: Node) -> None:
    node.busy[1], node.asks = 22, True

    assert 0 < node.pass_time(300) < 0.2
    assert not node.names


def test_a_kernel_that_outlasts_the_share_is_not_named(node: Node) -> None:
    """Its program asks for more meanwhile, and then waits for its cap."""
    node.obeys = False
    for _ in range(5):
        node.busy[1], node.asks = 100, True
        node.busy[2] = 0
        node.pass_time(3)
        node.busy, node.asks = {1: 0, 2: 50}, False
        node.pass_time(12)

    assert not node.names


def test_a_container_alone_on_its_gpu_is_not_watched(node: Node) -> None:
    node.watch.follow({}, {GPU: {1: "a", 7: "a"}})
    node.watch.look()

    assert not node.watch.is_suspicious
