"""Answers to questions that were asked before, and to many nodes at once, are those of a search."""

import random
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deviceplugin.model.fractional import Placement
from deviceplugin.model.pod_requests import ContainerKind, ContainerRequest, PodRequest
from deviceplugin.scheduler.answers.extender import NotAnswered
from deviceplugin.scheduler.answers.verdicts import NODES_AT_ONCE, Verdict, Verdicts, verdicts
from deviceplugin.scheduler.search.demand import Demand, demand_of
from deviceplugin.scheduler.search.fit import Plan, Refusal, plan, plan_of
from deviceplugin.scheduler.search.node_view import DRAINS, GpuRoom, NodeView
from deviceplugin.scheduler.search.score import score
from deviceplugin.scheduler.search.whole_gpus import whole_gpus_verdict
from deviceplugin.scheduler.search.wishes import NO_WISHES, Wishes
from libvgpu.limits import Family
from support import IS_LONG

DOMAIN = "nvidia.com"
BINPACK, SPREAD = Placement.BINPACK, Placement.SPREAD


@st.composite
def rooms(draw: st.DrawFn, index: int, units: int, placement: Placement) -> GpuRoom:
    core, memory = draw(st.integers(0, 100)), draw(st.integers(0, units))
    is_empty = draw(st.booleans())
    return GpuRoom(
        index,
        f"GPU-{index:08x}",
        draw(st.sampled_from(("NVIDIA A100", "NVIDIA H100"))),
        draw(st.sampled_from((Family.VGPU, Family.VGPU, Family.MPS))),
        100 if is_empty else core,
        units if is_empty else memory,
        units,
        1 << 30,
        draw(st.sampled_from((None, None, 0, 3))),
        is_empty,
        draw(st.sampled_from((True, True, False))),
        placement,
        problem=draw(st.sampled_from(("", "", "", "XID 79", DRAINS))),
    )


@st.composite
def views(draw: st.DrawFn) -> NodeView:
    sizes = draw(st.sampled_from(((8,), (16,), (8, 16))))
    placement = draw(st.sampled_from((*Placement, None)))
    gpus = [
        draw(rooms(n, draw(st.sampled_from(sizes)), placement or draw(st.sampled_from(Placement))))
        for n in range(draw(st.integers(0, 6)))
    ]
    return NodeView("n", draw(st.sampled_from((DOMAIN, DOMAIN, "other.io"))), tuple(gpus), {})


requests = st.builds(
    lambda family, core, memory: PodRequest(
        "u", "ns", "p",
        (ContainerRequest("c", {
            f"{DOMAIN}/{family}-{half}": n for half, n in (("core", core), ("memory", memory)) if n
        }),),
    ),
    st.sampled_from(("vgpu", "vgpu", "mps")),
    st.sampled_from((0, 1, 30, 50, 100, 200, 300, 400)),
    st.sampled_from((0, 0, 1, 4, 8, 16, 24, 32, 40)),
).filter(lambda request: bool(request.containers[0].amounts))  # fmt: skip

wishes = st.builds(
    Wishes,
    st.sampled_from(((), (), ("h100",))),
    st.sampled_from(((), (), ("a1*",))),
    st.sampled_from((frozenset(), frozenset(), frozenset({"GPU-00000001"}))),
    st.sampled_from((frozenset(), frozenset({"GPU-00000000"}))),
    st.none(),
    st.sampled_from((None, *Placement)),
)


def searched(view: NodeView, demand: Demand, policy: Placement) -> Verdict:
    """Returns what the whole search says."""
    found = plan_of(view, demand, [str(number) for number in range(len(demand.asks))])
    return found if isinstance(found, Refusal) else score(view, found, policy)


#: Nodes and pods for which a look for whole GPUs has an answer, and now and then a score.
empty_ones = st.builds(
    lambda gpus, full: NodeView("n", DOMAIN, tuple(
        GpuRoom(n, f"GPU-{n:08x}", "NVIDIA H100", Family.VGPU, core, units, size, 1 << 30, left,
                core == 100 and units == size, lone, BINPACK, problem=problem)
        for n, (size, left, lone, problem) in enumerate(gpus)
        for core, units in [(100, size) if n not in full else (60, size - 2)]
    ), {}),
    st.lists(
        st.tuples(
            st.sampled_from((8, 16, 16)),
            st.sampled_from((None, None, 3, 0)),
            st.sampled_from((True, True, True, False)),
            st.sampled_from(("",) * 8 + ("XID 79", DRAINS)),
        ),
        min_size=3, max_size=6,
    ),
    st.sets(st.integers(0, 5), max_size=2),
)  # fmt: skip
whole = st.builds(
    lambda core, memory: PodRequest(
        "u", "ns", "p",
        (ContainerRequest("c", {f"{DOMAIN}/vgpu-core": core}
                          | ({f"{DOMAIN}/vgpu-memory": memory} if memory else {})),),
    ),
    st.sampled_from((200, 200, 300)),
    st.sampled_from((0, 0, 16, 24, 32, 48)),
)  # fmt: skip


@settings(max_examples=700 if IS_LONG else 250)
@given(
    empty_ones | views(),
    whole | requests,
    st.just(NO_WISHES) | wishes,
    st.sampled_from(Placement),
)
def test_a_look_for_whole_gpus_says_what_a_search_says(
    view: NodeView, request: PodRequest, wished: Wishes, policy: Placement
) -> None:
    demand = demand_of(request, wished, DOMAIN)
    if isinstance(demand, Refusal):
        return
    quick = whole_gpus_verdict(view, demand, policy)
    assert quick is None or quick == searched(view, demand, policy)


amounts = st.one_of(
    st.just({}),
    st.builds(
        lambda family, core, memory: {
            f"{DOMAIN}/{family}-{half}": n for half, n in (("core", core), ("memory", memory)) if n
        },
        st.sampled_from(("vgpu", "vgpu", "vgpu", "mps")),
        st.sampled_from((0, 1, 20, 30, 50, 70, 100)),
        st.sampled_from((0, 1, 3, 4, 8, 12)),
    ),
)
pods = st.builds(
    lambda containers: PodRequest(
        "u",
        "ns",
        "p",
        tuple(ContainerRequest(f"c{n}", asked, kind) for n, (asked, kind) in enumerate(containers)),
    ),
    st.lists(
        st.tuples(amounts, st.sampled_from((ContainerKind.APP, ContainerKind.SIDECAR))),
        min_size=1,
        max_size=5,
    ),
)


@settings(max_examples=2500 if IS_LONG else 200)
@given(st.lists(views(), min_size=1, max_size=3), pods, wishes, st.sampled_from(Placement))
def test_many_nodes_at_once_say_what_a_search_of_each_says(
    nodes: list[NodeView], request: PodRequest, wished: Wishes, policy: Placement
) -> None:
    demand = demand_of(request, wished, DOMAIN)
    if isinstance(demand, Refusal):
        return
    one_by_one = [searched(view, demand, policy) for view in nodes]
    assert verdicts(nodes, demand, policy) == one_by_one


@settings(max_examples=300 if IS_LONG else 100)
@given(st.randoms(use_true_random=False), st.sampled_from(Placement))
def test_they_give_up_at_the_same_step(chance: random.Random, policy: Placement) -> None:
    """GPUs of which few are alike, and containers that nearly fit: hundreds of ways to try."""
    free = [(chance.randint(40, 70), chance.randint(8, 16)) for _ in range(chance.randint(1, 8))]
    gpus = tuple(
        GpuRoom(
            n, f"GPU-{n:08x}", "p", Family.VGPU, *chance.choice(free), 16, 1 << 30, is_empty=False
        )
        for n in range(8)
    )
    view = NodeView("n", DOMAIN, gpus, {})
    request = PodRequest(
        "u", "ns", "p",
        tuple(
            ContainerRequest(f"c{n}", {f"{DOMAIN}/vgpu-core": chance.randint(20, 45),
                                       f"{DOMAIN}/vgpu-memory": chance.randint(3, 8)})
            for n in range(chance.randint(6, 12))
        ),
    )  # fmt: skip
    demand = demand_of(request, NO_WISHES, DOMAIN)
    assert isinstance(demand, Demand)
    assert verdicts([view], demand, policy) == [searched(view, demand, policy)]


@pytest.mark.parametrize(("first", "second", "steps"), [(20, 12, 500), (3, 83, 501)])
def test_500_steps_are_made_and_no_more(first: int, second: int, steps: int) -> None:
    """The last two containers need the same GPU. For each place of the first, each place of the
    second is tried, and then the only place of the third.
    """
    assert first * (1 + second * 2) == steps
    free = [(50 + n, 2) for n in range(first)] + [(10, 40 + n) for n in range(second)] + [(45, 39)]
    gpus = tuple(
        GpuRoom(n, f"GPU-{n}", "p", Family.VGPU, core, memory, 200, 1 << 30, is_empty=False)
        for n, (core, memory) in enumerate(free)
    )
    view = NodeView("n", DOMAIN, gpus, {})
    asked = ((50, 1), (10, 40), (30, 30), (30, 30))
    containers = (pod(core, memory, str(n)).containers[0] for n, (core, memory) in enumerate(asked))
    demand = demand_of(PodRequest("u", "ns", "p", tuple(containers)), NO_WISHES, DOMAIN)
    assert isinstance(demand, Demand)
    (said,) = verdicts([view], demand, BINPACK)
    assert said == searched(view, demand, BINPACK)
    assert isinstance(said, Refusal)
    in_time = "container 4 of 4: " if steps <= 500 else "no place found in time: container 4 of 4: "
    assert said.reason.startswith(in_time)


@settings(max_examples=500 if IS_LONG else 150)
@given(
    empty_ones | views(),
    whole | requests,
    st.just(NO_WISHES) | wishes,
    st.sampled_from(Placement),
)
def test_scores_and_reasons_are_within_their_bounds(
    view: NodeView, request: PodRequest, wished: Wishes, policy: Placement
) -> None:
    found = plan(view, request, wished)
    if isinstance(found, Plan):
        assert 0 <= score(view, found, policy) <= 10
    else:
        assert 0 < len(found.reason.encode()) <= 200
        assert "\n" not in found.reason


def pod(core: int, memory: int, name: str = "p") -> PodRequest:
    amounts = {f"{DOMAIN}/vgpu-core": core, f"{DOMAIN}/vgpu-memory": memory}
    return PodRequest(name, "ns", name, (ContainerRequest(f"c-{name}", amounts),))


def node(name: str, core: int) -> NodeView:
    room = GpuRoom(0, f"GPU-{name}", "p", Family.VGPU, core, 16, 16, 1 << 30, is_empty=core == 100)
    return NodeView(name, DOMAIN, (room,), {})


class Counting:
    """Counts what had to be found out."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(
        self, views: Sequence[NodeView], demand: Demand, policy: Placement
    ) -> Sequence[Verdict]:
        self.asked += [view.name for view in views]
        return verdicts(views, demand, policy)


def test_a_node_that_has_not_changed_is_not_looked_at_again() -> None:
    judge = Counting()
    kept = Verdicts(judge=judge)
    nodes = [("a", 1, node("a", 100)), ("b", 1, node("b", 20))]
    first = kept.of_nodes(pod(30, 4), NO_WISHES, DOMAIN, BINPACK, nodes)
    assert isinstance(first["a"], int)
    assert first["b"] == Refusal("GPU 0: 20 core free of 30 asked")
    # Another pod of the same controller; b has changed meanwhile.
    nodes[1] = ("b", 2, node("b", 40))
    again = kept.of_nodes(pod(30, 4, "other"), NO_WISHES, DOMAIN, BINPACK, nodes)
    assert again["a"] == first["a"]
    assert isinstance(again["b"], int)
    assert judge.asked == ["a", "b", "b"]


def test_other_questions_have_other_answers() -> None:
    judge = Counting()
    kept = Verdicts(judge=judge)
    nodes = [("a", 1, node("a", 90))]
    answers = [
        kept.of_nodes(request, wished, DOMAIN, policy, nodes)["a"]
        for request, wished, policy in (
            (pod(30, 4), NO_WISHES, BINPACK),
            (pod(30, 5), NO_WISHES, BINPACK),
            (pod(30, 4), Wishes(use_models=("h100",)), BINPACK),
            (pod(30, 4), NO_WISHES, SPREAD),
            (pod(30, 4), Wishes(node_policy=SPREAD), BINPACK),
        )
    ]
    assert len(judge.asked) == 5
    assert answers[2] == Refusal("no GPU of family vgpu here is as wished: model h100", False)
    assert answers[3] == answers[4] != answers[0]


def test_what_no_node_can_give_needs_no_look_at_nodes() -> None:
    judge = Counting()
    nodes = [("a", 1, node("a", 100))]
    found = Verdicts(judge=judge).of_nodes(pod(150, 4), NO_WISHES, DOMAIN, BINPACK, nodes)
    assert isinstance(found["a"], Refusal)
    assert not found["a"].resolvable
    assert not judge.asked


def test_what_was_found_out_until_the_time_was_over_is_kept() -> None:
    judge = Counting()
    kept = Verdicts(most_answers=NODES_AT_ONCE, judge=judge)
    nodes = [(f"n{n}", 1, node(f"n{n}", 100)) for n in range(3 * NODES_AT_ONCE)]

    def until_the_time_is_over() -> Iterator[tuple[str, int, NodeView]]:
        yield from nodes[:NODES_AT_ONCE]
        raise NotAnswered("the time is over")

    with pytest.raises(NotAnswered):
        kept.of_nodes(pod(30, 4), NO_WISHES, DOMAIN, BINPACK, until_the_time_is_over())
    assert len(judge.asked) == NODES_AT_ONCE
    kept.of_nodes(pod(30, 4), NO_WISHES, DOMAIN, BINPACK, nodes[: NODES_AT_ONCE + 1])
    assert len(judge.asked) == NODES_AT_ONCE + 1
    with pytest.raises(NotAnswered):
        kept.of_nodes(pod(40, 4), NO_WISHES, DOMAIN, BINPACK, until_the_time_is_over())
    assert kept.count <= NODES_AT_ONCE


def test_what_is_kept_is_bounded_and_the_oldest_question_goes_first() -> None:
    judge = Counting()
    kept = Verdicts(most_answers=25, judge=judge)
    nodes = [(f"n{n}", 1, node(f"n{n}", 100)) for n in range(10)]
    for core in (1, 2, 1, 3):
        kept.of_nodes(pod(core, 1), NO_WISHES, DOMAIN, BINPACK, nodes)
        assert kept.count <= 25
    asked = len(judge.asked)
    assert asked == 30
    kept.of_nodes(pod(1, 1), NO_WISHES, DOMAIN, BINPACK, nodes)
    assert len(judge.asked) == asked  # asked again before 2 was
    kept.of_nodes(pod(2, 1), NO_WISHES, DOMAIN, BINPACK, nodes)
    assert len(judge.asked) == asked + 10
