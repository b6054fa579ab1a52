"""The core with the pods of its node: where they go, whose half it is, and how long it waits."""

import itertools
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from deviceplugin.core import pod_knowledge
from deviceplugin.core.pod_knowledge import NoPods, PodsOfNode
from deviceplugin.kube.node_pods import PodTable
from deviceplugin.log import LOGGER
from deviceplugin.model.chosen_gpus import ChosenGpus
from deviceplugin.model.pod_requests import ContainerKind, ContainerRequest, PodRequest
from deviceplugin.model.units import Half
from deviceplugin.policy.pairing.bound_pods import BoundPods
from libvgpu.errors import AllocationRefused
from support.node.core import GIB, Kubelet, fractional, some_gpus

NODE = "n1"
CORE, MEMORY = Half.CORE, Half.MEMORY


class Followed:
    """Follows the pods by a table that the test fills."""

    def __init__(self) -> None:
        self.table = PodTable(NODE)
        self.is_current = True
        self.waits = self.hurried = 0

    def seen(self) -> BoundPods:
        return self.table.seen(self.is_current)

    def wait(self, until: Callable[[BoundPods], bool], timeout_s: float) -> BoundPods:
        self.waits += 1
        return self.table.wait(until, timeout_s)

    def hurry(self) -> None:
        self.hurried += 1


class Node(Kubelet):
    """Eight GPUs of 80 units, and whoever follows pods."""

    def __init__(self, folder: Path, placement: str = "binpack", follows: bool = True) -> None:
        self.followed = Followed()
        source: PodsOfNode = self.followed if follows else NoPods()
        config = fractional(f"family: vgpu, memoryUnit: 1Gi, placement: {placement}")
        super().__init__(folder, config, some_gpus(8, 80 * GIB), pods=source)

    def bind(
        self,
        pod: str,
        *containers: tuple[int, int],
        gpus: Mapping[str, tuple[str, ...]] | None = None,
        kind: ContainerKind = ContainerKind.APP,
        node: str = NODE,
    ) -> None:
        """Has the API server tell of a pod with containers c0, c1, …; the first is of a kind."""
        asking = tuple(
            ContainerRequest(
                f"c{i}",
                {f"nvidia.com/vgpu-{h}": n for h, n in zip(Half, amounts, strict=True) if n},
                kind if i == 0 else ContainerKind.APP,
            )
            for i, amounts in enumerate(containers)
        )
        request = PodRequest(
            f"uid-{pod}",
            "team",
            pod,
            asking,
            node=NODE,
            chosen=ChosenGpus(node, gpus) if gpus is not None else None,
        )
        self.followed.table.put(request.uid, ("team", pod), request)

    def admit(self, pod: str, core: int, memory: int, first: Half = CORE, of: str = "c0") -> str:
        """Admits a container with a pair; returns its GPU."""
        amounts = {CORE: core, MEMORY: memory}
        found = [self.ask(pod, half, amounts[half], of) for half in (first, first.other)]
        assert found[0] == found[1]
        (gpu,) = found[0]
        return gpu


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize("first", list(Half))
def test_small_pods_fill_one_gpu_and_leave_the_others_whole(node: Node, first: Half) -> None:
    for i in range(8):
        node.bind(f"p{i}", (10, 8))
    found = [node.admit(f"p{i}", 10, 8, first) for i in range(8)]

    assert set(found) == {"GPU-0"}


@pytest.mark.parametrize("first", list(Half))
def test_where_nobody_follows_pods_each_small_pod_opens_a_gpu_as_before(
    tmp_path: Path, first: Half
) -> None:
    node = Node(tmp_path, follows=False)

    assert len({node.admit(f"p{i}", 10, 8, first) for i in range(8)}) == 8


def test_spread_takes_the_emptiest(tmp_path: Path) -> None:
    node = Node(tmp_path, "spread")
    for i in range(8):
        node.bind(f"p{i}", (10, 8))

    assert len({node.admit(f"p{i}", 10, 8) for i in range(8)}) == 8


def test_the_containers_of_one_pod_are_packed_too(node: Node) -> None:
    node.bind("two", (30, 20), (30, 40))
    node.begin("two", "c0", "c1")

    assert node.admit("two", 30, 20) == "GPU-0"
    assert node.admit("two", 30, 40, MEMORY, "c1") == "GPU-0"
    assert node.shapes() == [(30, 20), (30, 40)]


def test_lone_halves_of_one_pod_are_not_one_container(node: Node) -> None:
    node.bind("two", (30, 0), (0, 40))
    node.begin("two", "c0", "c1")

    node.ask("two", CORE, 30)
    node.ask("two", MEMORY, 40, "c1")

    assert node.shapes() == [(30, 0), (0, 40)]


def test_an_init_container_is_put_where_its_successor_has_room(node: Node) -> None:
    node.bind("busy", (60, 50))
    node.bind("pod", (10, 8), (50, 40), kind=ContainerKind.INIT)
    assert node.admit("busy", 60, 50) == "GPU-0"

    # GPU-0 is fuller and holds the init container, but not the one that gets its units.
    assert node.ask("pod", CORE, 10, shows=False) == {"GPU-1"}
    assert node.ask("pod", MEMORY, 8, shows=False) == {"GPU-1"}


@pytest.mark.parametrize("first", list(Half))
def test_the_chosen_gpu_is_taken(node: Node, first: Half) -> None:
    node.bind("a", (10, 8), gpus={"c0": ("GPU-5",)})
    node.bind("b", (10, 8), gpus={"c0": ("GPU-3",)})

    assert node.admit("a", 10, 8, first) == "GPU-5"
    assert node.admit("b", 10, 8, first) == "GPU-3"


def test_chosen_whole_gpus_are_taken(node: Node) -> None:
    node.bind("a", (200, 160), gpus={"c0": ("GPU-6", "GPU-2")})

    assert node.ask("a", CORE, 200) == {"GPU-2", "GPU-6"}
    assert node.ask("a", MEMORY, 160) == {"GPU-2", "GPU-6"}


@pytest.mark.parametrize(
    "gpus",
    [("GPU-7",), ("GPU-99",), ("GPU-1", "GPU-2"), ("",), ("x" * 9999,)],
    ids=["full", "not here", "several", "empty", "long"],
)
def test_a_choice_that_cannot_be_had_is_told_and_passed_over(
    node: Node, gpus: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    node.bind("full", (95, 8), gpus={"c0": ("GPU-7",)})
    assert node.admit("full", 95, 8) == "GPU-7"
    node.bind("spoofed", (10, 8), gpus={"c0": gpus})

    with caplog.at_level(logging.INFO, logger=LOGGER.name):
        assert node.admit("spoofed", 10, 8) == "GPU-0"

    told = [r for r in caplog.records if "chosen for a pod is not available" in r.message]
    assert len(told) == 1
    assert told[0].fields["pod"] == "team/spoofed"  # type: ignore[attr-defined]
    assert len(told[0].fields["chosen"]) <= 200  # type: ignore[attr-defined]


def test_pods_that_wait_with_other_amounts_are_told_apart_by_podresources(node: Node) -> None:
    for i, memory in enumerate((8, 40, 72)):
        node.bind(f"p{i}", (10, memory), gpus={"c0": (f"GPU-{i}",)})

    # The kubelet takes them in another order than they became known.
    assert [node.admit(f"p{i}", 10, m) for i, m in ((2, 72), (0, 8), (1, 40))] == [
        "GPU-2",
        "GPU-0",
        "GPU-1",
    ]


def test_without_podresources_a_guess_never_splits_a_pair(node: Node) -> None:
    node.answers = False
    node.bind("full", (10, 60))
    node.admit("full", 10, 60)
    for i, memory in enumerate((8, 40)):
        node.bind(f"p{i}", (20, memory))

    # Whether it is the small or the large one is not known: both find room.
    assert node.admit("p1", 20, 40) == "GPU-1"
    assert node.admit("p0", 20, 8) == "GPU-1"


def test_a_pod_that_is_not_known_yet_is_waited_for(node: Node) -> None:
    node.bind("other", (10, 40))
    node.begin("late")
    bound = threading.Timer(0.004, lambda: node.bind("late", (10, 8), gpus={"c0": ("GPU-5",)}))
    bound.start()

    assert node.admit("late", 10, 8) == "GPU-5"
    bound.join()


def test_it_waits_for_so_long_and_no_longer_and_not_in_allocate(node: Node) -> None:
    node.followed.table.put("uid", ("team", "any"), None)

    before_s = time.monotonic()
    node.admit("never", 10, 8)  # the second half has a partner: it does not wait again
    took_s = time.monotonic() - before_s

    assert node.followed.waits == 1
    assert took_s >= pod_knowledge.PATIENCE_S
    assert node.shapes() == [(10, 8)]


def test_it_does_not_wait_where_no_news_can_come_or_all_is_known(node: Node) -> None:
    node.bind("known", (10, 8))
    node.admit("known", 10, 8)
    node.admit("known", 20, 8, of="c1")  # known, and asks for what its spec has not
    assert node.followed.hurried == 0
    node.followed.is_current = False
    node.admit("unknown", 10, 8)

    assert node.followed.waits == 0
    assert node.followed.hurried == 1  # for those that come after it


def test_while_the_api_server_is_away_what_is_known_still_counts(node: Node) -> None:
    node.bind("a", (10, 8), gpus={"c0": ("GPU-5",)})
    node.followed.is_current = False

    assert node.admit("a", 10, 8) == "GPU-5"


def test_a_pod_that_nobody_tells_of_holds_up_nobody_for_ever(node: Node) -> None:
    node.begin("static")
    for name in ("a", "b", "c"):
        node.bind(name, (10, 8), gpus={"c0": ("GPU-5",)})

    # It may be the one that asks, and is waited for once.
    assert node.admit("a", 10, 8) == "GPU-0"
    assert node.admit("b", 10, 8) == "GPU-1"
    node.now += 6
    assert node.admit("c", 10, 8) == "GPU-5"
    assert node.followed.waits == 1


def test_random_pods_are_refused_no_more_often_than_without_knowledge(tmp_path: Path) -> None:
    """A pair that a single GPU has room for is admitted by both, on fewer GPUs by who knows."""
    for seed in range(6):
        draw = random.Random(seed)
        pods = [(draw.choice((5, 10, 20, 50)), draw.choice((4, 8, 20, 40))) for _ in range(24)]
        orders = [draw.choice(list(Half)) for _ in pods]
        used: dict[bool, int] = {}
        for follows in (True, False):
            folder = tmp_path / f"{seed}-{follows}"
            folder.mkdir()
            node = Node(folder, follows=follows)
            gpus = set()
            for i, ((core, memory), first) in enumerate(zip(pods, orders, strict=True)):
                node.bind(f"p{i}", (core, memory))
                with_room = any(
                    100 - c >= core and 80 - m >= memory for c, m in free_of(node).values()
                )
                try:
                    gpus.add(node.admit(f"p{i}", core, memory, first))
                except AllocationRefused:
                    assert not with_room, "a pair that a single GPU has room for is never refused"
                    node.held.pop((f"p{i}", "c0"))
            used[follows] = len(gpus)
        assert used[True] <= used[False]


def free_of(node: Node) -> dict[str, tuple[int, int]]:
    """Returns what is used of each GPU."""
    used = {f"GPU-{i}": (0, 0) for i in range(8)}
    for allocation, _ in node.service.allocations():
        core, memory = used[allocation.uuid]
        used[allocation.uuid] = core + len(allocation.core), memory + len(allocation.memory)
    return used


def test_a_table_keeps_the_order_in_which_pods_were_bound() -> None:
    table = PodTable(NODE)
    made = {
        name: PodRequest(name, "team", name, (), created_at=at)
        for name, at in (("a", 3.0), ("b", 1.0), ("c", 2.0), ("d", 0.0))
    }
    rows = {name: (name, ("team", name), each) for name, each in made.items()}
    table.replace([rows["a"], rows["b"]])
    table.put(*rows["c"])
    table.put("quiet", ("team", "quiet"), None)
    table.put(*rows["a"])

    seen = table.seen(True)
    assert [p.name for p in seen.pods] == ["b", "a", "c"]
    assert ("team", "quiet") in seen.names
    assert table.seen(True) is seen
    assert not table.seen(False).is_current

    table.replace([rows["d"], rows["c"], rows["a"]])
    assert [p.name for p in table.seen(True).pods] == ["a", "c", "d"]
    table.remove("a")
    assert sorted(table.seen(True).names) == [("team", "c"), ("team", "d")]
    assert list(itertools.chain(table.seen(True).pods)) == [made["c"], made["d"]]
