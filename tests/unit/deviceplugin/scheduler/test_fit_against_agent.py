"""Plans held against the agent's own policy, which gets what the kubelet would give by chance."""

import random
from collections.abc import Iterator
from itertools import combinations, product

from hypothesis import event, given, settings
from hypothesis import strategies as st

from deviceplugin.model.pod_requests import ContainerKind, ContainerRequest, PodRequest
from deviceplugin.model.units import Half, resource_name
from deviceplugin.scheduler.search.demand import demand_of
from deviceplugin.scheduler.search.fit import Plan, Refusal, plan
from deviceplugin.scheduler.search.wishes import NO_WISHES
from libvgpu.errors import AllocationRefused
from libvgpu.limits import Family
from support import IS_LONG
from support.scheduler.policy_node import DOMAIN, PolicyNode, shared

_KINDS = {"i": ContainerKind.INIT, "s": ContainerKind.SIDECAR, "a": ContainerKind.APP}


def pod(name: str, *containers: tuple[str, Family, int, int]) -> PodRequest:
    """A pod of containers by kind, family, core and memory."""
    return PodRequest(
        name, "ns", name,
        tuple(
            ContainerRequest(
                f"c{number}",
                {
                    resource_name(DOMAIN, family, half): amount
                    for half, amount in zip(Half, (core, memory), strict=True)
                    if amount
                },
                _KINDS[kind],
            )
            for number, (kind, family, core, memory) in enumerate(containers)
        ),
    )  # fmt: skip


_LONE = st.sampled_from(((1, 0), (2, 0), (25, 0), (50, 0), (75, 0), (100, 0), (0, 1), (0, 2)))
_WHOLE = st.tuples(st.sampled_from((200, 300)), st.sampled_from((0, 0, 8, 12)))
_ANY = st.tuples(
    st.sampled_from((0, 1, 2, 10, 25, 50, 50, 75, 100, 200)),
    st.sampled_from((0, 1, 2, 2, 3, 4, 8, 16)),
).filter(any)


@st.composite
def nodes(draw: st.DrawFn, most: int = 4) -> PolicyNode:
    """Nodes without pods; GPUs of one family have one memory more often than not."""
    sizes = draw(st.sampled_from(((4,), (4,), (8,), (4, 8))))
    families = draw(st.sampled_from(((Family.VGPU,), (Family.VGPU,), (Family.MPS,), tuple(Family))))
    forbids = draw(st.sampled_from((False,) * 7 + (True,)))
    return PolicyNode(
        [
            shared(n, draw(st.sampled_from(sizes)), draw(st.sampled_from(families)), not forbids)
            for n in range(draw(st.integers(1, most)))
        ]
    )


@st.composite
def pods(draw: st.DrawFn, name: str, most: int = 4) -> PodRequest:
    """Pods of up to so many containers; one half alone is frequent."""
    count = draw(st.integers(1, most))
    inits = draw(st.integers(0, count - 1))
    kinds = [draw(st.sampled_from("iiis")) for _ in range(inits)] + ["a"] * (count - inits)
    family = draw(st.sampled_from((Family.VGPU, Family.VGPU, Family.VGPU, Family.MPS)))
    amounts = draw(st.sampled_from((_ANY, _LONE, _ANY | _LONE, _WHOLE | _ANY)))
    return pod(name, *((kind, family, *draw(amounts)) for kind in kinds))


@settings(max_examples=800 if IS_LONG else 150)
@given(st.data())
def test_the_agent_gives_what_is_planned(data: st.DataObject) -> None:
    node = data.draw(nodes())
    for number in range(data.draw(st.integers(1, 6))):
        asks = data.draw(pods(f"p{number}"))
        view = node.view()
        found = plan(view, asks, NO_WISHES)
        event(type(found).__name__)
        if not isinstance(found, Plan):
            continue
        for seed in range(4):
            tried = node.copy()
            tried.admit(asks, found.chosen, random.Random(seed))
            check_reserved(view, tried, found)
        node.admit(asks, found.chosen, random.Random(0))
        if data.draw(st.booleans()):
            node.end(data.draw(st.sampled_from(sorted(node.pods))))


def check_reserved(view: object, after: PolicyNode, found: Plan) -> None:
    """What the pod holds is what is reserved, or less where chance may spare memory."""
    before = {room.uuid: room for room in view.gpus}  # type: ignore[attr-defined]
    for room in after.view().gpus:
        was, taken = before[room.uuid], found.reservation.gpus.get(room.uuid)
        if taken is None:
            assert (room.core, room.memory) == (was.core, was.memory)
            continue
        assert was.core - room.core == taken.core
        assert was.memory - room.memory <= taken.memory
        assert taken.core <= was.core
        assert taken.memory <= was.memory
        if room.containers_left is not None:
            assert was.containers_left - room.containers_left == taken.containers
            assert room.containers_left >= 0


def _assignments(node: PolicyNode, asks: PodRequest) -> Iterator[dict[str, tuple[str, ...]]]:
    """Yields every way to put the containers on GPUs.

    Not memory on several GPUs that one could have, too: an agent that does not read the choice
    would look for that one.
    """
    uuids = [gpu.gpu.uuid for gpu in node.gpus]
    sets = [each for size in (1, 2, 3) for each in combinations(uuids, size)]
    most = {f: max((g.memory_units for g in node.layout.of_family(f)), default=0) for f in Family}

    def could_be_one(container: ContainerRequest) -> bool:
        (family,) = container.families(DOMAIN)
        return 0 < container.amount(DOMAIN, family, Half.MEMORY) <= most[family]

    of_each = [
        [each for each in sets if len(each) == 1 or not could_be_one(container)]
        for container in asks.containers
    ]
    for chosen in product(*of_each):
        yield {c.name: each for c, each in zip(asks.containers, chosen, strict=True)}


def _works(node: PolicyNode, asks: PodRequest, chosen: dict[str, tuple[str, ...]]) -> bool:
    """Returns whether the agent gives it whatever chance brings."""
    for seed in range(12):
        try:
            node.copy().admit(asks, chosen, random.Random(seed))
        except AllocationRefused:
            return False
    return True


def _is_exact(asks: PodRequest) -> bool:
    """Returns whether a plan knows all that a pod's init containers pass on.

    Memory of one container serves the default of another that shares core units with it. Which
    units are passed on is chance, so what a default then takes is, too; a plan counts on none.
    """
    halves = {
        tuple(bool(each.amount(DOMAIN, family, half)) for half in Half)
        for each in asks.containers
        for family in each.families(DOMAIN)
    }
    passes_on = any(each.kind is ContainerKind.INIT for each in asks.containers)
    return not (passes_on and (True, False) in halves)


@settings(max_examples=150 if IS_LONG else 60)
@given(st.data())
def test_what_can_be_given_is_planned(data: st.DataObject) -> None:
    node = data.draw(nodes(most=3))
    for number in range(data.draw(st.integers(0, 3))):
        before = data.draw(pods(f"p{number}", most=2))
        found = plan(node.view(), before, NO_WISHES)
        if isinstance(found, Plan):
            node.admit(before, found.chosen, random.Random(1))
    asks = data.draw(pods("asks", most=3).filter(_is_exact))
    refused = isinstance(demand_of(asks, NO_WISHES, DOMAIN), Refusal)  # whatever the node has
    if refused or isinstance(plan(node.view(), asks, NO_WISHES), Plan):
        return
    for chosen in _assignments(node, asks):
        assert not _works(node, asks, chosen), chosen
