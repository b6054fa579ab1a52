"""Parts of the agent's figures: quantiles, what a process takes, the links of a ConfigMap."""

import os
import time
from pathlib import Path

import pytest

from benchmarks.allocate import summarise_growth, summarise_times
from benchmarks.churn import Kept, quantile
from benchmarks.config_reload import ConfigDirectory
from benchmarks.figure import is_missed
from benchmarks.process import cpu_seconds, descriptors, memory
from deviceplugin.testing.lean_wire import LISTINGS_BURST, Call, RateLimit

MIB = 1 << 20


@pytest.mark.parametrize(
    ("part", "expected"), [(0.5, 50), (0.99, 99), (0.001, 1), (1.0, 100), (0.991, 100)]
)
def test_a_quantile_is_a_value_that_was_measured(part: float, expected: int) -> None:
    assert quantile(list(range(100, 0, -1)), part) == expected
    assert quantile([7.0], part) == 7.0


def test_times_are_judged_by_the_median_of_the_rounds() -> None:
    slow = [Call("Allocate", "r", 0.003)] * 99 + [Call("Allocate", "r", 0.5)]
    fast = [Call("Allocate", "r", 0.001)] * 100
    others = [
        Call(method, "r", 0.001) for method in ("GetPreferredAllocation", "PreStartContainer")
    ]

    found = summarise_times([[*slow, *others], [*slow, *others], [*fast, *others]])

    p50, p99 = found[0], found[1]
    assert (p50.value, p50.low, p50.most) == (3.0, 2.0, 2.0)
    assert is_missed(p50)
    assert not is_missed(p99)
    assert "worst call 500.0 ms" in p99.note


def test_growth_is_what_is_there_more() -> None:
    before = Kept(50 * MIB, 20, 9, 3, 1000)
    after = Kept(52 * MIB, 21, 9, 3, 1000)

    found = {each.quantity: each for each in summarise_growth(10, before, after)}

    assert found["resident memory grown"].value == 2048
    assert [name for name, each in found.items() if is_missed(each)] == [
        "resident memory grown",
        "descriptors more",
    ]


def test_a_process_is_seen_from_outside() -> None:
    used = cpu_seconds(os.getpid())
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    with open(os.devnull):
        more = descriptors(os.getpid())

    assert 0.04 < cpu_seconds(os.getpid()) - used < 1.0
    assert more == descriptors(os.getpid()) + 1
    seen = memory(os.getpid())
    assert 0 < seen.own_bytes < seen.resident_bytes <= seen.peak_bytes


def test_all_ways_of_writing_a_config_are_seen_through_its_links(tmp_path: Path) -> None:
    config = ConfigDirectory(tmp_path / "config")
    config.make("first")
    inode = config.path.stat().st_ino

    config.rewrite("second")
    assert (config.path.read_text(), config.path.stat().st_ino == inode) == ("second", True)
    config.rename_over("third")
    assert (config.path.read_text(), config.path.stat().st_ino == inode) == ("third", False)
    turned = os.readlink(config.directory / "..data")
    config.swap_links("fourth")
    assert config.path.read_text() == "fourth"
    assert os.readlink(config.directory / "..data") != turned


def test_listings_are_rationed_as_the_kubelet_does() -> None:
    limit = RateLimit()

    granted = sum(limit.take() for _ in range(1000))

    assert LISTINGS_BURST <= granted < LISTINGS_BURST + 20
