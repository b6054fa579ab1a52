"""Which of the pods that are bound here asks, and what is expected of it."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from deviceplugin.model.allocations import Allocation, Owner
from deviceplugin.model.chosen_gpus import ChosenGpus
from deviceplugin.model.pod_requests import ContainerKind, ContainerRequest, PodRequest
from deviceplugin.model.units import Half, unit_name
from deviceplugin.policy.pairing import bound_pods
from deviceplugin.policy.pairing.bound_pods import Asked, BoundPods, Expected
from deviceplugin.policy.pairing.placement import Need
from deviceplugin.policy.pairing.podresources_listing import Listed
from libvgpu.limits import Family

CORE, MEMORY = Half.CORE, Half.MEMORY
NODE = "n1"
APP, INIT, SIDECAR = ContainerKind.APP, ContainerKind.INIT, ContainerKind.SIDECAR


def container(name: str, core: int, memory: int, kind: ContainerKind = APP) -> ContainerRequest:
    amounts = {"nvidia.com/vgpu-core": core, "nvidia.com/vgpu-memory": memory}
    return ContainerRequest(name, {k: v for k, v in amounts.items() if v}, kind)


def pod(
    name: str,
    *containers: ContainerRequest,
    gpus: dict[str, tuple[str, ...]] | None = None,
    node: str = NODE,
    told: bool = False,
    ended: bool = False,
) -> PodRequest:
    chosen = ChosenGpus(node, gpus) if gpus is not None else None
    return PodRequest(
        f"uid-{name}",
        "team",
        name,
        containers,
        node=NODE,
        chosen=chosen,
        is_acknowledged=told,
        is_ended=ended,
    )


def shown(name: str, of: str = "c0", core: int = 0, memory: int = 0, gpu: str = "GPU-0") -> Listed:
    units = [unit_name(gpu, CORE, n) for n in range(core)]
    units += [unit_name(gpu, MEMORY, n) for n in range(memory)]
    return Listed(Owner("team", name, of), frozenset(units))


def known(*pods: PodRequest, others: Sequence[str] = ()) -> BoundPods:
    names = {(p.namespace, p.name) for p in pods} | {("team", each) for each in others}
    return BoundPods(NODE, pods, frozenset(names), True)


def asked(half: Half, count: int) -> Asked:
    return Asked("nvidia.com", Family.VGPU, half, count)


def expected(
    half: Half, count: int, what: BoundPods, listing: list[Listed] | None
) -> Expected | None:
    return bound_pods.expected(what, listing, asked(half, count))


def need(half: Half, count: int, what: BoundPods, listing: list[Listed] | None) -> Need | None:
    found = expected(half, count, what, listing)
    return found.need if found else None


SMALL = pod("small", container("c0", 10, 8))


def test_the_other_amount_is_known_whichever_half_is_asked_first() -> None:
    for half, count in ((CORE, 10), (MEMORY, 8)):
        assert need(half, count, known(SMALL), [shown("small")]) == Need(10, 8)
        assert need(half, count, known(SMALL), None) == Need(10, 8)
        assert need(half, count + 1, known(SMALL), [shown("small")]) is None


def test_a_lone_half_is_known_as_such() -> None:
    core, memory = pod("a", container("c0", 30, 0)), pod("b", container("c0", 0, 30))

    assert need(CORE, 30, known(core), [shown("a")]) == Need(30, 0, default_core=30)
    assert need(MEMORY, 30, known(memory), [shown("b")]) == Need(0, 30)


def test_another_family_is_another_request() -> None:
    mps = pod(
        "mps", ContainerRequest("c0", {"nvidia.com/mps-core": 10, "nvidia.com/mps-memory": 4})
    )

    assert need(CORE, 10, known(mps), [shown("mps")]) is None


def test_of_equal_requests_the_listed_pod_asks() -> None:
    large = pod("large", container("c0", 10, 40))

    # Both wait; the kubelet has begun with one of them.
    assert need(CORE, 10, known(SMALL, large), [shown("large")]) == Need(10, 40)
    assert need(CORE, 10, known(SMALL, large), [shown("small")]) == Need(10, 8)


def test_without_a_listing_the_most_that_anyone_needs_counts_and_the_oldest_choice() -> None:
    first = pod("first", container("c0", 10, 8), gpus={"c0": ("GPU-5",)})
    second = pod("second", container("c0", 10, 40), gpus={"c0": ("GPU-6",)})

    for listing in (None, [shown("idle")]):  # or one in which neither stands
        found = expected(CORE, 10, known(first, second, others=["idle"]), listing)
        assert found == Expected("team/first", Need(10, 40), ("GPU-5",))


def test_of_several_listed_ones_the_last_has_its_turn() -> None:
    # The plain init container of the first had its turn, which podresources never shows.
    first = pod("first", container("i", 10, 30, INIT), gpus={"i": ("GPU-5",)})
    second = pod("second", container("c0", 10, 8), gpus={"c0": ("GPU-6",)})

    found = expected(CORE, 10, known(first, second), [shown("first"), shown("second")])

    assert found == Expected("team/second", Need(10, 30), ("GPU-6",))


def test_pods_that_had_their_turn_do_not_count() -> None:
    same = container("c0", 10, 40)
    for done, units in (
        (pod("done", same, told=True), (0, 0)),
        (pod("done", same, ended=True), (0, 0)),
        (pod("done", same), (10, 40)),
    ):
        for listing in ([shown("done", "c0", *units), shown("small")], None):
            if listing is None and any(units):
                continue  # nobody shows them
            assert need(CORE, 10, known(done, SMALL), listing) == Need(10, 8)


def test_a_pod_that_is_not_known_may_be_the_one_that_asks() -> None:
    listing = [shown("small"), shown("newer")]

    assert need(CORE, 10, known(SMALL), listing) is None
    assert bound_pods.unknown(known(SMALL), listing, ()) == {("team", "newer")}
    strange = {("team", "newer")}
    assert bound_pods.unknown(known(SMALL), listing, strange) == set()
    found = bound_pods.expected(known(SMALL), listing, asked(CORE, 10), strange)
    assert found is not None and found.need == Need(10, 8)
    assert need(CORE, 10, known(SMALL, others=["newer"]), listing) == Need(10, 8)


def test_the_containers_of_a_pod_come_one_after_the_other() -> None:
    two = known(pod("two", container("a", 10, 8), container("b", 10, 40)))

    # Before the first was shown it is its turn, whoever else asks for as many.
    assert need(CORE, 10, two, [shown("two", "a"), shown("two", "b")]) == Need(10, 8)
    assert need(MEMORY, 8, two, [shown("two", "a"), shown("two", "b")]) == Need(10, 8)
    done = [shown("two", "a", core=10, memory=8), shown("two", "b")]
    assert need(CORE, 10, two, done) == Need(10, 40)
    assert need(MEMORY, 8, two, done) is None
    # One that is shown with its other half asks for this one.
    half_done = [shown("two", "a", memory=8), shown("two", "b")]
    assert need(CORE, 10, two, half_done) == Need(10, 8)
    last = [shown("two", "a", core=10, memory=8), shown("two", "b", memory=40)]
    assert need(CORE, 10, two, last) == Need(10, 40)
    assert need(MEMORY, 40, two, last) is None


def test_a_container_that_comes_later_does_not_ask_before_the_one_before_it() -> None:
    gpus: dict[str, tuple[str, ...]] = {"c0": ("GPU-1",), "c1": ("GPU-2",)}
    two = pod("two", container("c0", 3, 4), container("c1", 6, 4), gpus=gpus)
    first = expected(MEMORY, 4, known(two), [shown("two")])
    assert first == Expected("team/two", Need(3, 4), ("GPU-1",))
    after = [shown("two", "c0", core=3, memory=4)]
    assert expected(MEMORY, 4, known(two), after) == Expected("team/two", Need(6, 4), ("GPU-2",))
    # Without a listing the first may have had its turn.
    assert need(MEMORY, 4, known(two), None) == Need(6, 4)


def test_a_plain_init_container_may_have_had_its_turn_unseen() -> None:
    both = pod("both", container("i0", 3, 4, INIT), container("c0", 60, 4))
    found = need(MEMORY, 4, known(both), [shown("both")])
    assert found is not None and found.core >= 60


def test_a_container_with_whole_devices_had_its_turn() -> None:
    gpu = ContainerRequest("a", {"nvidia.com/gpu": 1, "nvidia.com/vgpu-core": 10})
    both = known(pod("both", gpu, container("b", 10, 8)))
    has = Listed(Owner("team", "both", "a"), frozenset(), (("nvidia.com/gpu", "GPU-9"),))

    assert need(CORE, 10, both, [has, shown("both", "b")]) == Need(10, 8)


def test_a_plain_init_container_needs_room_for_those_that_get_its_units() -> None:
    def of(*containers: ContainerRequest) -> Need | None:
        return need(CORE, 10, known(pod("p", *containers)), [shown("p", "app")])

    init = container("i", 10, 8, INIT)
    assert of(init, container("app", 50, 40)) == Need(50, 40)
    assert of(init, container("app", 4, 40)) == Need(10, 40)
    # What one container got of it the next one does not get; what is left goes on.
    assert of(init, container("a", 6, 0), container("b", 6, 20)) == Need(12, 20, default_core=6)
    assert of(init, container("s", 10, 8, SIDECAR), container("b", 60, 70)) == Need(10, 8)
    # The next init container hands all of it on, and its own.
    assert of(init, container("j", 20, 4, INIT), container("b", 60, 8)) == Need(60, 8)
    # A container that gets nothing of it may be on another GPU.
    assert of(container("i", 10, 0, INIT), container("b", 0, 70)) == Need(10, 0, default_core=10)


def test_init_containers_with_core_alone_share_the_memory_that_comes_with_it() -> None:
    both = known(pod("p", container("i", 10, 0, INIT), container("app", 50, 0)))

    found = need(CORE, 10, both, [shown("p", "app")])

    assert found == Need(50, 0, default_core=50)
    assert found.memory_on(80) == 40
    assert Need(50, 60, default_core=50).memory_on(80) == 60


def test_a_choice_for_another_node_is_none() -> None:
    here = pod("a", container("c0", 10, 8), gpus={"c0": ("GPU-1",)})
    there = pod("a", container("c0", 10, 8), gpus={"c0": ("GPU-1",)}, node="n2")
    of_another = pod("a", container("c0", 10, 8), gpus={"c9": ("GPU-1",)})

    found = [expected(CORE, 10, known(each), [shown("a")]) for each in (here, there, of_another)]

    assert [each and each.gpus for each in found] == [("GPU-1",), (), ()]
    assert all(each and each.need == Need(10, 8) for each in found)


def open_half(half: Half, count: int) -> Allocation:
    units = tuple(unit_name("GPU-0", half, n) for n in range(count))
    return Allocation("a", Family.VGPU, "GPU-0", 1 << 30).with_half(half, units, 1.0)


def test_half_a_pair_is_not_of_who_never_asked_for_the_other_half() -> None:
    def other(pods: BoundPods, *listing: Listed) -> bool:
        partner = open_half(CORE, 10)
        return bound_pods.is_of_another(pods, list(listing), asked(MEMORY, 8), partner)

    lone, next_one = container("a", 10, 0), container("b", 0, 8)
    two = known(pod("p", lone, next_one))
    assert other(two, shown("p", "a", core=10), shown("p", "b"))
    assert not other(known(SMALL), shown("small", core=10))
    assert other(known(pod("p", container("a", 10, 9), next_one)), shown("p", "a", core=10))
    # Whose it is cannot be said: the pod, or one that is listed with it, is not known.
    assert not other(known(next_pod()), shown("p", "a", core=10), shown("next"))
    # A plain init container is not listed. It had its turn; nobody asks for both.
    init = known(pod("p", container("a", 10, 0, INIT), next_one))
    assert other(init, shown("p", "b"))
    pair = known(pod("p", container("a", 10, 8, INIT), container("b", 5, 8)))
    assert not other(pair, shown("p", "b"))
    assert not bound_pods.is_of_another(init, None, asked(MEMORY, 8), open_half(CORE, 10))
    unit, shows = known(pod("p", container("a", 1, 0), next_one)), shown("p", "a", core=1)
    assert bound_pods.is_of_another(unit, [shows], asked(MEMORY, 8), open_half(CORE, 1))


def next_pod() -> PodRequest:
    return pod("next", container("c0", 0, 8))


AMOUNTS = st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(any)
KINDS = st.sampled_from(ContainerKind)


@given(
    pods=st.lists(st.lists(st.tuples(AMOUNTS, KINDS), min_size=1, max_size=3), max_size=4),
    told=st.sets(st.integers(0, 3)),
    at=st.integers(0, 11),
    half=st.sampled_from(Half),
    lists=st.booleans(),
)
def test_the_container_that_asks_never_needs_more_than_is_expected(
    pods: list[list[tuple[tuple[int, int], ContainerKind]]],
    told: set[int],
    at: int,
    half: Half,
    lists: bool,
) -> None:
    """A kubelet that admits the pods one by one, told of late or not at all, at any moment."""
    made = [
        pod(
            f"p{i}",
            *(container(f"c{j}", *each, kind) for j, (each, kind) in enumerate(containers)),
            told=False,
        )
        for i, containers in enumerate(pods)
    ]
    turns = [(i, j) for i, each in enumerate(pods) for j in range(len(each))]
    if not turns:
        return
    now, place = turns[at % len(turns)]
    amounts = pods[now][place][0]
    count = amounts[0] if half is CORE else amounts[1]
    if not count:
        return
    # Pods before it are done and perhaps told of; those after it are known, and not listed.
    seen = [pod(p.name, *p.containers, told=i < now and i in told) for i, p in enumerate(made)]
    listing = [
        shown(p.name, c.name, *(amounts_of(c) if (i, j) < (now, place) else (0, 0)))
        for i, p in enumerate(made[: now + 1])
        for j, c in enumerate(p.containers)
        if c.kind is not INIT
    ]
    listing += [shown(p.name, "idle") for p in made[: now + 1]]
    found = need(half, count, known(*seen), listing if lists else None)

    assert found is not None
    assert found.core >= amounts[0] and found.memory >= amounts[1]
    if amounts[0] and not amounts[1]:
        assert found.default_core >= amounts[0]


def amounts_of(c: ContainerRequest) -> tuple[int, int]:
    core, memory = (c.amount("nvidia.com", Family.VGPU, half) for half in Half)
    return core, memory
