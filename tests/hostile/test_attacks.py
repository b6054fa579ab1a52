"""Whatever a tenant does to what is mounted for it, the agent and the neighbours go on.

Each row of the table is run by attackers of all kinds at once, against a real agent with its
arbiters, a kubelet's stand-in, and neighbours that hold memory and launch.
"""

import operator
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import pytest

from benchmarks.hostile.attacks import ROWS, Attack
from benchmarks.hostile.container import can_contain
from support.hostile.node import HostileNode, Measured
from support.suite.leftovers import MARK
from support.suite.own_folder import SHORT
from support.waiting import wait_until

pytestmark = [
    pytest.mark.hostile,
    pytest.mark.root,
    pytest.mark.skipif(not can_contain(), reason="may not make containers"),
]

MS = 1_000_000
HELD_MOST_NS = 50 * MS
ALLOCATE_P99_NS = 10 * MS
PODS = 2
#: A stall by an attack comes again at each try. One by the machine, which no clock shows, does not.
TRIES = 6


@dataclass
class Durations:
    """How long each `Allocate` took, in ns."""

    in_peace: list[int] = field(default_factory=list)
    attacked: list[int] = field(default_factory=list)


@pytest.fixture(scope="module")
def node() -> Iterator[HostileNode]:
    with tempfile.TemporaryDirectory(prefix="vgpu-", dir=SHORT) as base:
        with mock.patch.dict(os.environ):
            del os.environ[MARK]  # they outlive a test
            node = HostileNode(Path(base))
            node.start_neighbours()
        with node:
            yield node


@pytest.fixture(scope="module")
def durations() -> Durations:
    return Durations()


def of_allocate(found: list[Measured]) -> list[int]:
    return [each.ns for each in found if each.what == "allocate"]


@pytest.mark.parametrize("attack", ROWS, ids=lambda attack: attack.name)
def test_nobody_else_notices(node: HostileNode, attack: Attack, durations: Durations) -> None:
    books = node.books()
    for _ in range(TRIES):
        worked = node.worked_ns()
        node.measured()
        node.kubelet.finish(node.admit_one("in-peace"))
        durations.in_peace += of_allocate(node.measured())
        with node.watched_health() as ill, node.attacked(attack.name) as outcomes:
            for number in range(PODS):
                node.kubelet.finish(node.admit_one(f"honest-{number}"))
            assert "vgpu_container_memory_limit_bytes" in node.page("/metrics")
            wait_until(lambda: all(map(operator.lt, worked, node.worked_ns())))  # noqa: B023
        found = node.measured()
        durations.attacked += of_allocate(found)
        print(outcomes, *found[-3:], sep="\n")

        assert node.books() == books
        assert not ill
        if found[-1].ns < HELD_MOST_NS:
            break
    else:
        pytest.fail(f"the agent was held up each time, at last by {found[-1]}")


def test_allocate_was_quick_all_the_time(durations: Durations) -> None:
    """As quick as the bar, or as in between on a slow machine."""
    assert len(durations.attacked) > 100
    in_peace, attacked = (p99(each) for each in (durations.in_peace, durations.attacked))
    print(f"p99 {in_peace / MS:.1f} ms in peace, {attacked / MS:.1f} ms while attacked")

    assert attacked < max(ALLOCATE_P99_NS, 2 * in_peace)


def p99(values: list[int]) -> int:
    return sorted(values)[len(values) * 99 // 100]
