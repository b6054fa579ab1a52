"""What schedulers are told, from a real state by the real planner."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deviceplugin.model.fractional import Placement
from deviceplugin.model.quotas import Quota
from deviceplugin.pages.published import PublishedNode, decode, encode
from deviceplugin.scheduler.answers.calls import Judgement, NodesAsked, PreemptionAsked, Victims
from deviceplugin.scheduler.answers.extender import Extender, NotAnswered
from deviceplugin.scheduler.answers.judging import Finding
from deviceplugin.scheduler.cluster.cluster import Cluster
from deviceplugin.scheduler.search.plans import Plan
from deviceplugin.scheduler.search.policies import Policies
from deviceplugin.scheduler.wire import kube_scheduler
from libvgpu.limits import Family
from support.scheduler.values import DOMAIN, gpu, held_slice, pod_of, published

FAR = float("inf")


class World:
    """An extender and what it is made of."""

    def __init__(
        self,
        nodes: dict[str, PublishedNode],
        quotas: Sequence[Quota] = (),
        policies: Policies | None = None,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        policies = policies or Policies(DOMAIN)
        self.cluster = Cluster(policies.plan)
        self.cluster.set_nodes(nodes)
        self.obstacle = ""
        self.counted: dict[Finding, int] = {}
        self.remembered: list[str] = []
        self.extender = Extender(
            self.cluster,
            policies,
            lambda: quotas,
            lambda: self.obstacle,
            lambda finding, n: self.counted.update({finding: self.counted.get(finding, 0) + n}),
            lambda request: self.remembered.append(request.uid),
            clock=clock,
        )

    def filter(self, asked: NodesAsked, deadline_s: float = FAR) -> Judgement:
        return self.extender.filter(asked, deadline_s)


def asked(
    core: int,
    memory: int | str = 0,
    names: Sequence[str] = ("n1", "n2"),
    nodes: Sequence[dict[str, Any]] | None = None,
    resource: str = "",
    **annotations: str,
) -> NodesAsked:
    """Returns a call as kube-scheduler sends it."""
    limits = {f"{DOMAIN}/vgpu-core": str(core), f"{DOMAIN}/vgpu-memory": str(memory)}
    if resource:
        limits = {f"{DOMAIN}/{resource}": str(core)}
    pod = {
        "metadata": {
            "name": "new",
            "namespace": "team",
            "uid": "uid-new",
            "annotations": {
                f"{DOMAIN}/vgpu.{key.replace('_', '-')}": value
                for key, value in annotations.items()
            },
        },
        "spec": {"priority": 5, "containers": [{"name": "m", "resources": {"limits": limits}}]},
    }
    more = {"Nodes": {"items": nodes}} if nodes is not None else {"NodeNames": names}
    return kube_scheduler.nodes_asked(json.dumps({"Pod": pod, **more}).encode())


TWO = {
    "n1": published(held_slice("a", "a", 60, 10, 0), held_slice("b", "b", 60, 10, 1)),
    "n2": published(node="n2"),
}


def test_units_of_two_gpus_are_not_added_up() -> None:
    world = World(TWO)

    found = world.filter(asked(60, 10))

    assert list(found.fitting) == ["n2"]
    assert "40" in found.refused["n1"] and "60" in found.refused["n1"]
    assert world.counted == {Finding.FITS: 1, Finding.NO_ROOM: 1}
    assert world.remembered == ["uid-new"]


def test_filter_and_prioritize_change_nothing() -> None:
    world = World(TWO)
    before = [world.cluster.view(name) for name in TWO]

    for _ in range(3):
        world.filter(asked(60, 10))
        world.extender.prioritize(asked(60, 10), FAR)

    assert [world.cluster.view(name) for name in TWO] == before
    assert world.cluster.assumed_count == 0


def test_a_node_that_is_not_known_is_refused() -> None:
    world = World(TWO)

    found = world.filter(asked(10, 1, names=["n2", "n9"]))

    assert list(found.fitting) == ["n2"]
    assert found.impossible["n9"].startswith("no inventory of this node: n9 has no node agent")
    assert world.counted[Finding.NO_INVENTORY] == 1


def test_a_template_is_judged_by_its_allocatable_and_a_known_node_is_not() -> None:
    amounts = {f"{DOMAIN}/vgpu-core": "200", f"{DOMAIN}/vgpu-memory": "160"}
    nodes = [
        {"metadata": {"name": name}, "status": {"allocatable": amounts}}
        for name in ("template", "n1")
    ]
    nodes.append({"metadata": {"name": "bare"}, "status": {}})
    world = World(TWO)

    found = world.filter(asked(60, 10, nodes=nodes))

    assert list(found.fitting) == ["template"]
    assert list(found.refused) == ["n1"] and list(found.impossible) == ["bare"]
    too_much = world.filter(asked(60, 81, nodes=nodes))
    assert "template" not in too_much.fitting


def test_a_pod_that_asks_for_nothing_goes_anywhere() -> None:
    world = World({})

    found = world.filter(asked(3, names=["n8", "n9"], resource="other"))
    nothing = asked(0, names=["n8", "n9"])

    assert list(world.filter(nothing).fitting) == ["n8", "n9"]
    assert world.extender.prioritize(nothing, FAR) == [("n8", 0), ("n9", 0)]
    assert list(found.fitting) == []


def test_binpack_prefers_the_node_where_no_gpu_is_opened_and_spread_the_other() -> None:
    nodes = {
        "n1": published(held_slice("a", "a", 50, 40, 0)),
        "n2": published(node="n2"),
    }
    packed = dict(World(nodes).extender.prioritize(asked(50, 40), FAR))
    spread = World(nodes, policies=Policies(DOMAIN, Placement.SPREAD))
    wished = dict(World(nodes).extender.prioritize(asked(50, 40, node_policy="spread"), FAR))

    assert packed["n1"] > packed["n2"]
    assert wished == dict(spread.extender.prioritize(asked(50, 40), FAR))
    assert wished["n2"] > wished["n1"]
    assert all(0 <= score <= 10 for score in (*packed.values(), *wished.values()))


def test_the_gpu_policy_of_the_program_counts_where_the_pod_has_none() -> None:
    nodes = {"n1": published(held_slice("a", "a", 50, 40, 0))}
    request = pod_of("new", 10, 5)

    def place(policies: Policies) -> str:
        world = World(nodes, policies=policies)
        found = world.cluster.view("n1")
        assert found is not None
        plan = policies.plan(found[1], request)
        assert isinstance(plan, Plan)
        return plan.chosen["main"][0]

    assert place(Policies(DOMAIN)) == "GPU-n1-0"
    assert place(Policies(DOMAIN, gpu_policy=Placement.SPREAD)) == "GPU-n1-1"


def test_a_wish_that_is_not_allowed_is_told_of_every_node() -> None:
    world = World(TWO)

    found = world.filter(asked(10, 1, node_policy="tight"))

    assert not found.fitting and not found.refused
    assert set(found.impossible) == {"n1", "n2"}
    assert "allowed are binpack and spread" in found.impossible["n1"]
    assert world.extender.prioritize(asked(10, 1, node_policy="tight"), FAR) == [
        ("n1", 0),
        ("n2", 0),
    ]


def test_amounts_that_are_none_are_told_of_every_node() -> None:
    call = asked(10, 1)
    container = (call.pod.spec.containers or [])[0]
    assert container.resources is not None and container.resources.limits is not None
    container.resources.limits[f"{DOMAIN}/vgpu-core"] = "lots"

    found = World(TWO).filter(call)

    assert "'lots' is not an amount" in found.impossible["n1"]


def test_nobody_is_answered_from_a_state_that_is_not_known() -> None:
    world = World(TWO)
    world.obstacle = "nodes and pods of the cluster are not known yet"

    assert world.filter(asked(10, 1)) == Judgement(error=world.obstacle)
    with pytest.raises(NotAnswered):
        world.extender.prioritize(asked(10, 1), FAR)


def test_a_call_that_takes_too_long_is_ended() -> None:
    world = World(TWO, clock=lambda: 10.0)

    assert "took too long" in world.filter(asked(10, 1), 9.0).error
    assert world.filter(asked(10, 1), 11.0).error == ""


def test_a_quota_refuses_what_would_go_beyond_it_units_of_a_lone_core_included() -> None:
    quotas = [Quota("te*", (Family.VGPU,), memory_bytes=30 << 30)]
    held = {"n1": published(held_slice("a", "a", 20, 10, 0)), "n2": published(node="n2")}
    world = World(held, quotas)

    lone = world.filter(asked(50))
    small = world.filter(asked(5, 20))

    assert not lone.fitting
    assert "40" in lone.impossible["n2"] and "quota" in lone.impossible["n2"]
    assert list(small.fitting) == ["n1", "n2"]
    assert world.counted == {Finding.QUOTA: 2, Finding.FITS: 2}


def test_a_quota_counts_by_the_units_of_each_node() -> None:
    quotas = [Quota("team", (Family.VGPU,), memory_bytes=20 << 30)]
    small = published(node="n2", gpus=[gpu(0, 24, node="n2")])
    world = World({"n1": published(), "n2": small}, quotas)

    found = world.filter(asked(50))  # half a GPU's memory: 40 GiB there, 12 GiB here

    assert list(found.fitting) == ["n2"]
    assert "40" in found.impossible["n1"]


def preempting(victims: dict[str, list[str]], core: int = 80) -> PreemptionAsked:
    named = {name: Victims(tuple(uids), 1) for name, uids in victims.items()}
    return PreemptionAsked(asked(core, 40).pod, named)


def test_only_victims_whose_gpu_then_fits_the_pod_are_named() -> None:
    world = World(
        {
            "n1": published(held_slice("a", "a", 60, 10, 0), held_slice("b", "b", 30, 10, 1)),
            "n2": published(held_slice("c", "c", 60, 10, 0, node="n2"), count=1, node="n2"),
        }
    )
    for name, node, priority in (("a", "n1", 0), ("b", "n1", 0), ("c", "n2", 9)):
        world.cluster.set_pod(pod_of(name, 10, 1, node, priority=priority))

    found = world.extender.preempt(
        preempting({"n1": ["uid-a", "uid-b"], "n2": ["uid-c"], "n9": ["uid-z"]}), FAR
    )

    assert found in ({"n1": Victims((uid,), 1)} for uid in ("uid-a", "uid-b"))
    left = world.cluster.view_without("n1", found["n1"].uids)
    assert left is not None and max(room.core for room in left.gpus) >= 80


def test_the_refusal_of_a_bind_is_that_of_the_quota() -> None:
    world = World(TWO, [Quota("team", (Family.VGPU,), core_units=150)])
    found = world.cluster.view("n2")
    assert found is not None

    for core, is_refused in ((30, False), (31, True)):
        request = pod_of("new", core, 1)
        plan = world.extender.policies.plan(found[1], request)
        assert isinstance(plan, Plan)
        assert bool(world.extender.bind_refusal(request, found[1], plan)) is is_refused


AMOUNTS = st.one_of(
    st.sampled_from(
        ["16Gi", "16Ti", "1e30", "16E", "16Ei", "-1", "0.5", "100m", "9" * 60, "9" * 400, "1e999",
         "16Mi", "16Ki", "x", "", "1n", "2147483647", "2147483648", "2147483600"]
    ),
    st.integers(-(2**70), 2**70),
    st.from_regex(
        r"[0-9]{1,12}(\.[0-9]{1,3})?([KMGTPE]i|[numkMGTPE]|e[0-9]{1,3})?", fullmatch=True
    ),
)  # fmt: skip
RESOURCES = st.sampled_from(["vgpu-core", "vgpu-memory", "mps-core", "mps-memory", "gpu"])
LIMITS = st.dictionaries(RESOURCES.map(lambda name: f"{DOMAIN}/{name}"), AMOUNTS, max_size=4)


@given(st.lists(LIMITS, min_size=1, max_size=3), LIMITS)
def test_whatever_is_asked_for_or_offered_the_answer_is_a_sentence(
    containers: list[dict[str, Any]], allocatable: dict[str, Any]
) -> None:
    world = World(TWO)
    pod = {
        "metadata": {"name": "new", "namespace": "team", "uid": "u"},
        "spec": {"containers": [{"name": "m", "resources": {"limits": e}} for e in containers]},
    }
    template = {"metadata": {"name": "t"}, "status": {"allocatable": allocatable}}
    named = [{"metadata": {"name": name}} for name in TWO]
    sent = kube_scheduler.nodes_asked(
        json.dumps({"Pod": pod, "Nodes": {"items": [*named, template]}}).encode()
    )

    found = world.filter(sent)

    assert {*found.fitting, *found.refused, *found.impossible} == {"n1", "n2", "t"}
    assert all({**found.refused, **found.impossible}.values())
    assert not found.error
    assert json.loads(kube_scheduler.filter_result(found, sent))
    assert all(0 <= score <= 10 for _, score in world.extender.prioritize(sent, FAR))


def test_bytes_asked_for_where_units_count_are_told_so() -> None:
    world = World(TWO)
    too_many = "allowed are whole numbers from 0 to 2147483647, which count units and not bytes"
    too_large = "16 TiB of memory asked, a GPU here has 80 GiB; memory is counted in units of 1 GiB"
    for memory, says in (
        ("16Gi", f"vgpu-memory: '16Gi' is more than any node has; {too_many}: for 16 write 16"),
        ("16Ki", f"{too_large}: for 16 of them write 16"),
    ):
        found = world.filter(asked(10, memory))

        assert says in found.impossible["n2"]


def test_a_template_that_offers_bytes_is_told_so() -> None:
    offered = {f"{DOMAIN}/vgpu-core": "200", f"{DOMAIN}/vgpu-memory": "16Ti"}
    template = {"metadata": {"name": "t"}, "status": {"allocatable": offered}}

    found = World(TWO).filter(asked(10, 1, nodes=[template]))

    assert "nvidia.com/vgpu-memory: 17592186044416, which is more than" in found.impossible["t"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("memoryUnits", 2**40),
        ("memoryUnits", 0),
        ("memoryUnits", -5),
        ("memoryUnitBytes", 2**64),
        ("mostContainers", 2**40),
        ("mostContainers", -1),
    ],
)
def test_an_inventory_with_numbers_that_no_node_has_is_none(key: str, value: int) -> None:
    node = json.loads(encode(TWO["n2"]))
    assert decode(json.dumps(node)) == TWO["n2"]
    node["gpus"][0]["sharing"][key] = value

    assert decode(json.dumps(node)) is None
