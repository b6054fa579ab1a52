"""Volcano's calls: gangs of fractional pods, which are bound when the last one has room."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deviceplugin.model.quotas import Quota
from deviceplugin.pages.published import PublishedNode
from deviceplugin.scheduler.answers.extender import Extender, NotAnswered
from deviceplugin.scheduler.cluster.cluster import Cluster
from deviceplugin.scheduler.search.plans import Plan
from deviceplugin.scheduler.search.policies import Policies
from deviceplugin.scheduler.wire import volcano_calls
from deviceplugin.scheduler.wire.go_json import CallMalformed
from deviceplugin.scheduler.wire.volcano import VolcanoExtender
from deviceplugin.scheduler.wire.volcano_calls import Code, Vote
from libvgpu.limits import Family
from support.scheduler.process import pod_json
from support.scheduler.values import DOMAIN, gpu, held_slice, pod_of, published
from support.scheduler.volcano_calls import (
    ALLOCATED,
    BINDING,
    BOUND,
    PENDING,
    PIPELINED,
    RELEASING,
    RUNNING,
    node_info,
    predicate,
    preemptable,
    prioritize,
    task,
)

FITS = (Code.SUCCESS, "")


class Session:
    """Volcano's session with the extender: what is allocated on which node."""

    def __init__(
        self, nodes: dict[str, PublishedNode], quotas: Sequence[Quota] = (), weight: int = 10
    ) -> None:
        policies = Policies(DOMAIN)
        self.cluster = Cluster(policies.plan)
        self.cluster.set_nodes(nodes)
        self.obstacle = ""
        extender = Extender(self.cluster, policies, lambda: quotas, lambda: self.obstacle)
        self.volcano = VolcanoExtender(extender, weight)
        self.tasks: dict[str, list[dict[str, Any]]] = {name: [] for name in nodes}

    def ask(self, pod: dict[str, Any], node: str) -> tuple[Code, str]:
        info = node_info(node, self.tasks.get(node, ()))
        return self.volcano.predicate(volcano_calls.task_on_node(predicate(task(pod), info)))

    def scores(self, pod: dict[str, Any]) -> dict[str, float]:
        nodes = [node_info(name, tasks) for name, tasks in self.tasks.items()]
        return self.volcano.prioritize(volcano_calls.task_on_nodes(prioritize(task(pod), nodes)))

    def allocate(self, pod: dict[str, Any]) -> str:
        """Puts a pod on the best node as Volcano does; empty where none will do."""
        fitting = [name for name in self.tasks if self.ask(pod, name) == FITS]
        if not fitting:
            return ""
        scores = self.scores(pod)
        best = max(fitting, key=lambda name: scores[name])
        self.tasks[best].append(task(pod, ALLOCATED, best))
        return best

    def gang(self, *amounts: tuple[int, int]) -> list[str]:
        """Puts all pods of a gang; empty where not all have a place."""
        placed = [self.allocate(pod_json(f"g{n}", *each)) for n, each in enumerate(amounts)]
        return placed if all(placed) else []


def test_units_of_two_gpus_are_not_added_up_within_a_session() -> None:
    """60 and 60 leave 40 and 40, which the node's sum shows as 80."""
    session = Session({"n1": published(count=2)})

    assert session.gang((60, 8), (60, 8)) == ["n1", "n1"]
    code, why = session.ask(pod_json("more", 60, 8), "n1")

    assert code is Code.UNSCHEDULABLE
    assert why.startswith("next to 2 that are to be bound: ") and "60" in why


def test_a_gang_packs_and_opens_a_gpu_only_where_it_must() -> None:
    nodes = {"n1": published(count=2), "n2": published(count=2, node="n2")}

    placed = Session(nodes).gang(*[(50, 40)] * 4)

    assert len(set(placed)) == 1


def test_an_order_in_which_not_all_fit_is_no_place() -> None:
    """40, 40, 60 and 60 fit two GPUs only if no two small ones come to one GPU first."""
    session = Session({"n1": published(count=2)})

    assert session.gang((60, 8), (60, 8), (40, 8)) == ["n1"] * 3
    assert session.allocate(pod_json("late", 40, 8)) == ""


@pytest.mark.parametrize(
    ("status", "counts"),
    [
        (ALLOCATED, True),
        (BINDING, True),
        (BOUND, True),
        (RUNNING, True),
        (PENDING, False),
        (PIPELINED, False),
        (RELEASING, False),
    ],
)
def test_what_takes_room_by_its_status(status: int, counts: bool) -> None:
    session = Session({"n1": published(count=1)})
    session.tasks["n1"].append(task(pod_json("a", 60, 8), status, "n1"))

    assert (session.ask(pod_json("b", 60, 8), "n1") == FITS) is not counts


def test_what_the_cluster_knows_is_not_counted_twice() -> None:
    session = Session({"n1": published(count=1)})
    session.cluster.set_pod(pod_of("a", 50, 8, "n1"))
    session.tasks["n1"].append(task(pod_json("a", 50, 8), BOUND, "n1"))

    assert session.ask(pod_json("b", 50, 8), "n1") == FITS


def test_the_task_itself_is_not_in_its_own_way() -> None:
    session = Session({"n1": published(count=1)})
    pod = pod_json("a", 60, 8)
    session.tasks["n1"].append(task(pod, ALLOCATED, "n1"))

    assert session.ask(pod, "n1") == FITS


def test_what_no_eviction_changes_is_told_apart() -> None:
    session = Session({"n1": published(held_slice("x", "x", 60, 8), count=1)})

    assert session.ask(pod_json("b", 60, 8), "n1")[0] is Code.UNSCHEDULABLE
    assert session.ask(pod_json("b", 60, 81), "n1")[0] is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    code, why = session.ask(pod_json("b", 60, 8), "n9")
    assert code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE and "no inventory" in why
    bad = pod_json("b", 60, 8, annotations={f"{DOMAIN}/vgpu.gpu-policy": "x"})
    assert session.ask(bad, "n1")[0] is Code.UNSCHEDULABLE_AND_UNRESOLVABLE


def test_pods_that_ask_for_nothing_of_ours_go_anywhere() -> None:
    session = Session({})

    assert session.ask(pod_json("a"), "n9") == FITS


def test_nobody_is_answered_from_a_state_that_is_not_known() -> None:
    session = Session({"n1": published()})
    session.obstacle = "not known yet"

    assert session.ask(pod_json("a", 1, 1), "n1") == (Code.ERROR, "not known yet")
    with pytest.raises(NotAnswered):
        session.scores(pod_json("a", 1, 1))


def test_scores_are_in_volcanos_measure() -> None:
    nodes = {
        "n1": published(held_slice("x", "x", 50, 40), count=1),
        "n2": published(count=2, node="n2"),
    }
    pod = pod_json("a", 50, 40)

    scores, double = Session(nodes).scores(pod), Session(nodes, weight=20).scores(pod)

    assert scores["n1"] == 1000 and scores["n1"] > scores["n2"]
    assert double == {name: 2 * score for name, score in scores.items()}
    assert Session(nodes).scores(pod_json("b", 60, 8))["n1"] == 0


def test_a_quota_counts_for_volcano() -> None:
    session = Session({"n1": published()}, [Quota("team", (Family.VGPU,), core_units=40)])

    code, why = session.ask(pod_json("a", 41, 1), "n1")

    assert code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE and "quota" in why
    assert session.ask(pod_json("a", 40, 1), "n1") == FITS


def test_evicted_is_only_whose_gpu_then_fits_the_task() -> None:
    session = Session(
        {"n1": published(held_slice("x", "a", 60, 8, 0), held_slice("y", "b", 30, 8, 1))}
    )
    pods = [pod_json("a", 60, 8, "n1", priority=9), pod_json("b", 30, 8, "n1", priority=9)]
    for pod in pods:
        session.cluster.set_pod(pod_of(pod["metadata"]["name"], 1, 1, "n1", priority=9))
    evictees = [task(pod, RUNNING, "n1") for pod in pods]
    evictor = task(pod_json("new", 80, 8, priority=9))

    vote, raw = session.volcano.evictable(
        volcano_calls.eviction_asked(preemptable(evictor, evictees))
    )
    answer = json.loads(volcano_calls.eviction_result(vote, raw))

    assert answer["status"] == Vote.PERMIT
    assert len(answer["victims"]) == 1 and answer["victims"][0] in evictees
    too_large = task(pod_json("new", 80, 81, priority=9))
    none = volcano_calls.eviction_asked(preemptable(too_large, evictees))
    assert session.volcano.evictable(none) == (Vote.PERMIT, [])
    other = volcano_calls.eviction_asked(preemptable(task(pod_json("cpu")), evictees))
    assert session.volcano.evictable(other) == (Vote.ABSTAIN, [])


def test_answers_are_as_volcano_reads_them() -> None:
    assert json.loads(volcano_calls.predicate_result(Code.UNSCHEDULABLE, "full")) == {
        "status": "full",
        "code": 2,
    }
    assert json.loads(volcano_calls.prioritize_result({"n1": 3.0})) == {
        "nodeScore": {"n1": 3.0},
        "errorMessage": "",
    }


@pytest.mark.parametrize(
    "sent", [b"", b"[]", b"{}", b'{"task": null, "node": {}}', b'{"task": {"Pod": 1}}',
             b'{"task": {"Pod": {"metadata": {}}}}', b'{"task":' + b"[" * 100_000]
)  # fmt: skip
def test_what_is_no_call_is_refused_with_a_sentence(sent: bytes) -> None:
    with pytest.raises(CallMalformed):
        volcano_calls.task_on_node(sent)


AMOUNTS = st.tuples(st.sampled_from([10, 20, 25, 40, 50, 60, 100]), st.integers(1, 40))


@given(st.lists(AMOUNTS, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_a_gang_with_a_place_fits_large_ones_first_and_small_ones_first(
    amounts: list[tuple[int, int]], order: Any
) -> None:
    """The node's agent places them one by one, in the order in which they are bound."""
    session = Session({"n1": published(gpus=[gpu(0), gpu(1)])})
    for number, each in enumerate(amounts):
        session.allocate(pod_json(f"g{number}", *each))

    placed = [each["Pod"] for each in session.tasks["n1"]]
    by_size = sorted(placed, key=lambda pod: _amounts(pod), reverse=order.random() < 0.5)
    view = session.cluster.view("n1")
    assert view is not None
    for pod in by_size:
        request = pod_of(pod["metadata"]["name"], *_amounts(pod))
        found = session.cluster.view("n1")
        assert found is not None
        plan = Policies(DOMAIN).plan(found[1], request)
        assert isinstance(plan, Plan), (plan, [_amounts(each) for each in by_size])
        session.cluster.assume(request, "n1", plan, 0.0)


def _amounts(pod: dict[str, Any]) -> tuple[int, int]:
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    return int(limits[f"{DOMAIN}/vgpu-core"]), int(limits[f"{DOMAIN}/vgpu-memory"])
