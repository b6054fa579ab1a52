"""Where a pod goes on a node, and what is said where it does not."""

from dataclasses import replace

import pytest

from deviceplugin.model.fractional import Placement
from deviceplugin.model.pod_requests import ContainerKind, ContainerRequest, PodRequest
from deviceplugin.scheduler.search import node_search
from deviceplugin.scheduler.search.fit import Plan, Refusal, plan
from deviceplugin.scheduler.search.node_view import (
    DRAINS,
    DeviceRoom,
    GpuRoom,
    NodeView,
    Reservation,
    Taken,
)
from deviceplugin.scheduler.search.wishes import NO_WISHES, Wishes
from libvgpu.limits import Family

GIB = 1 << 30
INIT, SIDECAR, APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP


def gpu(index: int, core: int = 100, memory: int = 80, units: int = 80, **more: object) -> GpuRoom:
    room = GpuRoom(
        index, f"GPU-{index}", "NVIDIA H100", Family.VGPU, core, memory, units, GIB,
        is_empty=core == 100 and memory == units,
    )  # fmt: skip
    return replace(room, **more)  # type: ignore[arg-type]


def node(*gpus: GpuRoom, **devices: DeviceRoom) -> NodeView:
    named = {f"nvidia.com/{name.replace('_', '-')}": room for name, room in devices.items()}
    return NodeView("n", "nvidia.com", gpus, named)


def container(name: str = "c", kind: ContainerKind = APP, **amounts: int) -> ContainerRequest:
    named = {f"nvidia.com/{key.replace('_', '-')}": value for key, value in amounts.items()}
    return ContainerRequest(name, named, kind)


def pair(core: int, memory: int, name: str = "c", kind: ContainerKind = APP) -> ContainerRequest:
    return container(name, kind, vgpu_core=core, vgpu_memory=memory)


def pod(*containers: ContainerRequest) -> PodRequest:
    return PodRequest("u", "ns", "p", containers)


def planned(view: NodeView, *containers: ContainerRequest, wishes: Wishes = NO_WISHES) -> Plan:
    found = plan(view, pod(*containers), wishes)
    assert isinstance(found, Plan), found
    return found


def refused(view: NodeView, *containers: ContainerRequest, wishes: Wishes = NO_WISHES) -> Refusal:
    found = plan(view, pod(*containers), wishes)
    assert isinstance(found, Refusal), found
    return found


def test_a_pair_goes_to_the_fullest_gpu_that_holds_both() -> None:
    view = node(gpu(0), gpu(1, 40, 40), gpu(2, 35, 30), gpu(3, 10, 80))
    found = planned(view, pair(30, 16))
    assert found.chosen == {"c": ("GPU-2",)}
    assert found.reservation == Reservation({"GPU-2": Taken(30, 16, 1)})
    assert (found.opens, found.whole) == (0, 0)
    assert found.leftover == pytest.approx((0.05 + 14 / 80) / 2)


def test_spread_takes_the_emptiest_and_a_wish_comes_before_the_config() -> None:
    view = node(gpu(0, 50, 40), gpu(1), gpu(2, 40, 40))
    assert planned(view, pair(30, 16)).chosen == {"c": ("GPU-2",)}
    spread = Wishes(gpu_policy=Placement.SPREAD)
    assert planned(view, pair(30, 16), wishes=spread).chosen == {"c": ("GPU-1",)}
    by_config = node(*(replace(each, placement=Placement.SPREAD) for each in view.gpus))
    assert planned(by_config, pair(30, 16)).chosen == {"c": ("GPU-1",)}


def test_core_alone_comes_with_its_share_of_memory() -> None:
    view = node(gpu(0, 50, 39), gpu(1, 60, 50))
    found = planned(view, container(vgpu_core=50))
    assert found.reservation == Reservation({"GPU-1": Taken(50, 40, 1)})
    assert refused(node(gpu(0, 50, 39)), container(vgpu_core=50)) == Refusal(
        "GPU 0: 39 GiB free of 40 GiB asked, which come with 50 core"
    )


def test_whole_gpus_are_empty_ones_that_lie_close() -> None:
    near = {0: {3: 118}, 3: {0: 118}}
    view = node(
        *(gpu(n, closeness={f"GPU-{o}": c for o, c in near.get(n, {}).items()}) for n in range(4)),
        gpu(4, 100, 79),
    )
    found = planned(view, container(vgpu_core=200))
    assert found.chosen == {"c": ("GPU-0", "GPU-3")}
    assert found.reservation.gpus == {"GPU-0": Taken(100, 80, 1), "GPU-3": Taken(100, 80, 1)}
    assert (found.opens, found.whole) == (2, 2)
    assert planned(view, container(vgpu_core=400, vgpu_memory=320)).whole == 4
    first_is_used = node(gpu(0, 100, 79), gpu(1), gpu(2))
    assert planned(first_is_used, container(vgpu_core=200)).chosen["c"] == ("GPU-1", "GPU-2")
    # 100 is a fraction: who has memory alone there may stay.
    assert planned(view, pair(100, 60)).chosen == {"c": ("GPU-4",)}
    assert refused(view, container(vgpu_core=500)) == Refusal(
        "5 empty GPUs asked, 4 of 5 are empty"
    )
    assert refused(view, container(vgpu_core=600)) == Refusal(
        "6 whole GPUs asked, there are 5 here", False
    )
    assert not refused(view, container(vgpu_core=200, vgpu_memory=100)).resolvable


def test_memory_of_several_gpus() -> None:
    view = node(gpu(0), gpu(1), gpu(2, 90, 80))
    found = planned(view, container(vgpu_memory=160))
    assert found.reservation.gpus == {"GPU-0": Taken(0, 80, 1), "GPU-1": Taken(0, 80, 1)}


def test_containers_of_a_pod_are_put_together() -> None:
    view = node(gpu(0, 60, 40), gpu(1, 60, 40))
    found = planned(view, pair(60, 20, "a"), pair(60, 20, "b"))
    assert found.chosen == {"a": ("GPU-0",), "b": ("GPU-1",)}
    assert refused(view, pair(60, 20, "a"), pair(60, 20, "b"), pair(1, 1, "c")) == Refusal(
        "container 3 of 3: GPU 0: 0 core free of 1 asked"
    )
    assert not refused(node(gpu(0)), pair(60, 9, "a"), pair(60, 9, "b")).resolvable


def test_what_the_first_takes_is_undone_where_the_second_needs_it() -> None:
    """The fullest GPU is the only one for the second container."""
    view = node(gpu(0, 40, 80), gpu(1, 60, 10))
    assert planned(view, pair(30, 8, "a")).chosen == {"a": ("GPU-1",)}
    found = planned(view, pair(30, 8, "a"), pair(50, 8, "b"))
    assert found.chosen == {"a": ("GPU-0",), "b": ("GPU-1",)}


def test_a_container_must_be_where_its_init_container_was() -> None:
    view = node(gpu(0, 40, 20), gpu(1, 60, 40))
    # The init container alone would go to GPU 0.
    found = planned(view, pair(30, 10, "a", INIT), pair(60, 20, "b"))
    assert found.chosen == {"a": ("GPU-1",), "b": ("GPU-1",)}
    why = refused(node(gpu(0, 40, 20)), pair(30, 10, "a", INIT), pair(60, 20, "b"))
    assert why == Refusal(
        "container 2 of 2: it takes over what an init container had on GPU 0, where it does not fit"
    )


def test_of_whole_gpus_of_an_init_container_no_part_can_be_had() -> None:
    """Which units it gets of them is chance."""
    view = node(gpu(0), gpu(1), gpu(2))
    first = container("a", INIT, vgpu_core=200)
    assert isinstance(plan(view, pod(first, pair(30, 8, "b")), NO_WISHES), Refusal)
    found = planned(view, first, container("b", vgpu_core=300))
    assert found.reservation.gpus == {f"GPU-{n}": Taken(100, 80, 1 + (n < 2)) for n in range(3)}


@pytest.mark.parametrize(
    ("containers", "says"),
    [
        ((container(vgpu_core=30, mps_core=30),), "a container has one slice, of one family"),
        ((container(vgpu_core=30, gpu=1),), "either slices or whole devices"),
        ((container(vgpu_core=150),), "allowed are 1 to 100, or 200, 300 and so on"),
        ((container(mps_memory=8),), "MPS has no left-over compute"),
        (
            (container("a", INIT, vgpu_core=30), pair(30, 8, "b")),
            "container a asks for core alone, and agents would take memory of b for its own",
        ),
        (
            (container("a", INIT, vgpu_core=30), container("b", vgpu_memory=8), pair(30, 8, "c")),
            "agents would take memory of b for its own",
        ),
        (
            (
                pair(30, 8, "a", INIT),
                container("b", SIDECAR, vgpu_core=20),
                container("c", vgpu_memory=8),
            ),
            "let b ask for both",
        ),
    ],
)
def test_what_no_node_can_give(containers: tuple[ContainerRequest, ...], says: str) -> None:
    why = refused(node(gpu(0), gpu=DeviceRoom(8, 8)), *containers)
    assert says in why.reason
    assert not why.resolvable


@pytest.mark.parametrize(
    ("gpus", "core", "memory", "says", "resolvable"),
    [
        ([gpu(0, 100, 20), gpu(3, 80, 30)], 60, 40,
         "GPU 3: 30 GiB free of 40 GiB asked", True),
        ([gpu(0, 50, 60), gpu(1, 10, 80)], 60, 40, "GPU 0: 50 core free of 60 asked", True),
        ([gpu(0, 80, 20), gpu(1, 30, 60)], 60, 40,
         ("no single GPU has 60 core and 40 GiB: GPU 0 has 80 core but 20 GiB, "
          "GPU 1 60 GiB but 30 core"), True),
        ([gpu(0, 30, 20)], 60, 40,
         "GPU 0: 30 core and 20 GiB free of 60 core and 40 GiB asked", True),
        ([gpu(0)], 60, 81, "81 GiB of memory asked, a GPU here has 80 GiB", False),
        ([gpu(0, family=Family.MPS)], 60, 40, "no GPU is shared in family vgpu here", False),
        ([], 60, 40, "no GPU is shared in family vgpu here", False),
        ([gpu(0, problem="XID 79")], 60, 40, "GPU 0: XID 79", False),
        ([gpu(0, problem=DRAINS)], 60, 40, f"GPU 0: {DRAINS}", True),
        ([gpu(0, containers_left=0, core=90)], 60, 40,
         "GPU 0: MPS serves no more containers there", True),
        ([gpu(0, lone_halves=False)], 60, 0,
         "core of family vgpu alone is forbidden here", False),
        ([gpu(0, lone_halves=False)], 200, 0,
         "core of family vgpu alone is forbidden here", False),
    ],
)  # fmt: skip
def test_a_refusal_names_what_came_nearest(
    gpus: list[GpuRoom], core: int, memory: int, says: str, resolvable: bool
) -> None:
    amounts = {"nvidia.com/vgpu-core": core, "nvidia.com/vgpu-memory": memory}
    asks = ContainerRequest("c", {name: amount for name, amount in amounts.items() if amount})
    assert refused(node(*gpus), asks) == Refusal(says, resolvable)


def test_wishes_narrow_the_choice() -> None:
    view = node(gpu(0, 50, 50), gpu(1, product="NVIDIA A100"), gpu(2))
    assert planned(view, pair(30, 8), wishes=Wishes(use_models=("a100",))).chosen["c"] == ("GPU-1",)
    avoid = Wishes(avoid_models=("a100",), avoid_gpus=frozenset({"GPU-0"}))
    assert planned(view, pair(30, 8), wishes=avoid).chosen["c"] == ("GPU-2",)
    only = Wishes(use_gpus=frozenset({"GPU-9"}))
    assert refused(view, pair(30, 8), wishes=only) == Refusal(
        "no GPU of family vgpu here is as wished: one of GPU-9", False
    )


def test_whole_devices_and_replicas_are_counted() -> None:
    room = DeviceRoom(2, 4, most=0, products=("NVIDIA H100",))
    view = node(gpu=room, gpu_shared=DeviceRoom(3, 8, most=1))
    found = planned(view, container("a", INIT, gpu=2), container("b", gpu=1), container("c", gpu=1))
    assert found.reservation == Reservation({}, {"nvidia.com/gpu": 2})
    assert found.chosen == {}
    assert refused(view, container(gpu=3)) == Refusal("nvidia.com/gpu: 2 free of 3 asked")
    assert refused(view, container(gpu=5)) == Refusal(
        "nvidia.com/gpu: 5 asked, there are 4 here", False
    )
    assert refused(view, container(gpu_shared=2)) == Refusal(
        "nvidia.com/gpu-shared: 2 asked, a container may have 1 here", False
    )
    assert refused(view, container(mig=1)) == Refusal("the node offers no nvidia.com/mig", False)
    two = refused(view, container("a", gpu=2), container("b", gpu=1))
    assert two == Refusal("container 2 of 2: nvidia.com/gpu: 0 free of 1 asked")
    for wishes in (Wishes(use_models=("a100",)), Wishes(avoid_gpus=frozenset({"GPU-1"}))):
        assert not refused(view, container(gpu=1), wishes=wishes).resolvable
    assert planned(view, container(gpu=1), wishes=Wishes(use_models=("h100",)))


def test_a_search_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before all was tried; nobody knows then whether an end of others would help."""
    view = node(*(gpu(n, 50 + n, 80 - n) for n in range(6)))
    asks = [pair(40 + n % 3, 2 + n, f"c{n}") for n in range(7)]
    monkeypatch.setattr(node_search, "MOST_STEPS", 8)
    found = refused(view, *asks)
    assert found.reason.startswith("no place found in time: container 7 of 7: GPU")
    monkeypatch.setattr(node_search, "MOST_STEPS", 5)
    asks[0] = pair(39, 2, "c0")
    assert refused(view, *asks) == Refusal(
        "no place found in time: too many ways to place the containers"
    )


def test_mps_serves_so_many_containers() -> None:
    """Init containers count: the agent keeps theirs as long as the pod lives."""
    view = node(gpu(0, family=Family.MPS, containers_left=2))
    asks = [container(name, mps_core=10, mps_memory=8) for name in "abc"]
    assert planned(view, *asks[:2]).reservation.gpus["GPU-0"].containers == 2
    assert refused(view, *asks).reason == (
        "container 3 of 3: GPU 0: MPS serves no more containers there"
    )
    first = ContainerRequest("i", asks[0].amounts, INIT)
    assert isinstance(plan(view, pod(first, *asks[:2]), NO_WISHES), Refusal)


def test_whole_gpus_take_over_both_halves_or_none() -> None:
    """If core is asked for first, of which it gets none, the agent looks for empty GPUs."""
    view = node(gpu(0), gpu(1), gpu(2))
    both = container("b", vgpu_core=300, vgpu_memory=240)
    first = container("a", INIT, vgpu_memory=160)
    assert isinstance(plan(view, pod(first, both), NO_WISHES), Refusal)
    first = container("a", INIT, vgpu_core=200, vgpu_memory=160)
    assert planned(view, first, both).whole == 3


def test_what_init_containers_had_on_two_gpus_is_not_for_one_container() -> None:
    view = node(gpu(0, 100, 40), gpu(1, 50, 80))
    first = (container("a", INIT, vgpu_core=30), container("b", INIT, vgpu_memory=70))
    found = planned(view, *first)
    assert found.chosen == {"a": ("GPU-0",), "b": ("GPU-1",)}
    why = refused(view, *first, pair(40, 71, "c"))
    assert "had on GPU 0 and 1, where it does not fit" in why.reason


def test_memory_of_whole_gpus_is_more_than_one_gpu_has() -> None:
    """Else an agent that is asked for memory first looks for that one."""
    small, large = [gpu(n, memory=40, units=40) for n in range(3)], gpu(3)
    assert planned(node(*small), container(vgpu_core=200, vgpu_memory=80)).whole == 2
    assert isinstance(
        plan(node(*small, large), pod(container(vgpu_core=200, vgpu_memory=80)), NO_WISHES), Refusal
    )
    assert planned(node(*small, large), container(vgpu_core=300, vgpu_memory=120)).whole == 3


def test_another_domain_is_another_resource() -> None:
    view = replace(node(gpu(0)), domain="other.io")
    assert not refused(view, pair(30, 8)).resolvable


def test_a_pod_that_asks_for_nothing_fits() -> None:
    assert planned(node()) == Plan({}, Reservation())
