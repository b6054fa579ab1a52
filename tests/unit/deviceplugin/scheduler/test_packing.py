"""Scores pack: on 100 nodes as many GPUs stay whole as where every GPU is weighed at once."""

import random
from collections.abc import Callable

import pytest

from deviceplugin.model.fractional import Placement
from deviceplugin.model.pod_requests import ContainerRequest, PodRequest
from deviceplugin.scheduler.answers.verdicts import Verdicts, verdicts
from deviceplugin.scheduler.search.demand import Demand, demand_of
from deviceplugin.scheduler.search.fit import Plan, plan
from deviceplugin.scheduler.search.node_view import DeviceRoom, GpuRoom, NodeView
from deviceplugin.scheduler.search.score import score
from deviceplugin.scheduler.search.wishes import NO_WISHES
from libvgpu.limits import Family

NODES, GPUS, UNITS = 100, 8, 80
DOMAIN = "nvidia.com"
Shape = Callable[[random.Random], tuple[int, int]]
Free = list[tuple[int, int]]


def view(name: str, free: Free) -> NodeView:
    rooms = (
        GpuRoom(n, str(n), "p", Family.VGPU, core, memory, UNITS, 1 << 30,
                is_empty=(core, memory) == (100, UNITS))
        for n, (core, memory) in enumerate(free)
    )  # fmt: skip
    return NodeView(name, DOMAIN, tuple(rooms), {})


def pod(core: int, memory: int) -> PodRequest:
    amounts = {f"{DOMAIN}/vgpu-core": core, f"{DOMAIN}/vgpu-memory": memory}
    wanted = {name: amount for name, amount in amounts.items() if amount}
    return PodRequest("u", "ns", "p", (ContainerRequest("c", wanted),))


def proportional(chance: random.Random) -> tuple[int, int]:
    return chance.choice(((10, 8), (20, 16), (25, 20), (30, 24), (50, 40), (12, 10)))


def uneven(chance: random.Random) -> tuple[int, int]:
    return chance.choice(((10, 16), (30, 8), (25, 10), (20, 24), (50, 20), (40, 40), (60, 30)))


def any_shape(chance: random.Random) -> tuple[int, int]:
    return chance.randint(5, 60), chance.randint(4, 48)


def with_whole(shape: Shape) -> Shape:
    def mixed(chance: random.Random) -> tuple[int, int]:
        return (chance.choice((200, 400, 800)), 0) if chance.random() < 0.03 else shape(chance)

    return mixed


def off_line(pods: list[tuple[int, int]]) -> int:
    """Returns how many GPUs best fit leaves whole that sees all of them at once."""
    opened: list[list[int]] = []
    whole = 0
    for core, memory in pods:
        if core > 100:
            whole += core // 100
            continue
        fitting = [gpu for gpu in opened if gpu[0] >= core and gpu[1] >= memory]
        if not fitting:
            opened.append([100, UNITS])
            fitting = opened[-1:]
        best = min(fitting, key=lambda gpu: (gpu[0] / 100 + gpu[1] / UNITS, gpu))
        best[0], best[1] = best[0] - core, best[1] - memory
    return NODES * GPUS - whole - len(opened)


@pytest.mark.parametrize("shape", [proportional, uneven, any_shape])
@pytest.mark.parametrize("are_mixed", [False, True])
def test_gpus_stay_whole(shape: Shape, are_mixed: bool) -> None:
    chance = random.Random(4)
    draw = with_whole(shape) if are_mixed else shape
    free: list[Free] = [[(100, UNITS)] * GPUS for _ in range(NODES)]
    views = [(f"n{n}", 0, view(f"n{n}", each)) for n, each in enumerate(free)]
    kept, pods, used = Verdicts(), [], 0.0
    while used < 0.5 * NODES * GPUS:
        core, memory = draw(chance)
        asks = pod(core, memory)
        found = kept.of_nodes(asks, NO_WISHES, DOMAIN, Placement.BINPACK, views)
        scores = [each if isinstance(each, int) else -1 for each in found.values()]
        assert max(scores) >= 0
        # kube-scheduler takes any of the best.
        best = chance.choice([n for n, each in enumerate(scores) if each == max(scores)])
        planned = plan(views[best][2], asks, NO_WISHES)
        assert isinstance(planned, Plan)
        for uuid, taken in planned.reservation.gpus.items():
            had = free[best][int(uuid)]
            free[best][int(uuid)] = (had[0] - taken.core, had[1] - taken.memory)
        views[best] = (views[best][0], views[best][1] + 1, view(views[best][0], free[best]))
        pods.append((core, memory))
        used += core / 100 if core > 100 else max(core / 100, memory / UNITS)
    whole = sum(gpu == (100, UNITS) for each in free for gpu in each)
    assert whole >= 0.98 * off_line(pods)


def scored(free: Free, asks: PodRequest, policy: Placement = Placement.BINPACK) -> int:
    node = view("n", free)
    found = plan(node, asks, NO_WISHES)
    assert isinstance(found, Plan)
    return score(node, found, policy)


def test_a_fraction_goes_where_no_gpu_is_opened_and_least_is_left() -> None:
    small = pod(30, 24)
    tight, loose = scored([(30, 24), (100, 80)], small), scored([(90, 70), (100, 80)], small)
    opening = scored([(20, 80), (100, 80)], small)
    assert tight == 10 > loose > opening
    # Where one must be opened, it is on the node with the fewest empty ones.
    assert scored([(100, 80), (10, 10), (10, 10)], small) > scored([(100, 80)] * 3, small)


def test_whole_gpus_go_to_the_node_with_the_fewest_empty_ones_left() -> None:
    asks = pod(200, 0)
    exact, more = scored([(100, 80)] * 2 + [(50, 40)] * 2, asks), scored([(100, 80)] * 4, asks)
    assert exact == 10 > more


def test_spread_takes_the_emptiest_node() -> None:
    small = pod(30, 24)
    full, empty = [(30, 24), (50, 40)], [(100, 80)] * 2
    assert scored(empty, small, Placement.SPREAD) > scored(full, small, Placement.SPREAD)
    assert scored([(100, 80)], pod(100, 80), Placement.SPREAD) == 0


@pytest.mark.parametrize(
    ("free", "binpack", "spread"),
    [
        ([(30, 24)], 10, 0),
        ([(40, 32)], 8, 1),
        ([(90, 72)], 5, 6),
        ([(100, 80)], 3, 7),
        ([(100, 80), (10, 8)], 3, 4),
        ([(100, 80), (100, 80)], 2, 8),
        ([(100, 80), (30, 24)], 10, 5),
        ([(60, 40), (50, 80)], 7, 5),
        ([(90, 30), (40, 40)], 8, 4),
    ],
)
def test_the_score_of_a_node_is_a_number_of_steps(free: Free, binpack: int, spread: int) -> None:
    """The same in both searches."""
    asks, node = pod(30, 24), view("n", free)
    demand = demand_of(asks, NO_WISHES, DOMAIN)
    assert isinstance(demand, Demand)
    for policy, expected in ((Placement.BINPACK, binpack), (Placement.SPREAD, spread)):
        assert scored(free, asks, policy) == expected
        assert verdicts([node], demand, policy) == [expected]


def test_whole_devices() -> None:
    asks = PodRequest("u", "ns", "p", (ContainerRequest("c", {"nvidia.com/gpu": 2}),))
    scores = []
    for free in (2, 6):
        node = NodeView("n", DOMAIN, (), {"nvidia.com/gpu": DeviceRoom(free, 8)})
        found = plan(node, asks, NO_WISHES)
        assert isinstance(found, Plan)
        scores.append([score(node, found, policy) for policy in Placement])
    (tight, _), (loose, spread) = scores
    assert tight == 10 > loose
    assert spread == 5
