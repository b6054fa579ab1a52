"""The simulated API server's answers, without HTTP."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from benchmarks.simulated_cluster import pod_calls
from benchmarks.simulated_cluster.calls import Calls
from benchmarks.simulated_cluster.kinds import LEASE, POD
from benchmarks.simulated_cluster.object_store import ObjectStore
from benchmarks.simulated_cluster.refusals import ApiFailure

MERGE = "application/merge-patch+json"
PODS = "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


@pytest.fixture
def store() -> ObjectStore:
    return ObjectStore()


Call = Callable[..., Any]


@pytest.fixture
def call(store: ObjectStore) -> Call:
    calls = Calls(store)

    def ask(method: str, target: str, body: Any = None, kind: str = "application/json") -> Any:
        encoded = msgspec.json.encode(body) if body is not None else b""
        answer = calls.answer(method, target, kind, encoded)
        return msgspec.json.decode(answer.body)

    return ask


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [{"name": "main"}]},
    }


def binding(name: str, node: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, "target": {"kind": "Node", "name": node}}


def test_an_object_comes_back_with_uid_version_kind_and_phase(call: Call) -> None:
    made = call("POST", PODS, pod("a"))
    assert made["kind"] == "Pod"
    assert made["metadata"]["namespace"] == "default"
    assert made["metadata"]["uid"] and int(made["metadata"]["resourceVersion"]) > 1
    assert made["status"]["phase"] == "Pending"
    assert call("GET", f"{PODS}/a") == made
    with pytest.raises(ApiFailure, match="already exists") as refused:
        call("POST", PODS, pod("a"))
    assert refused.value.status == 409
    with pytest.raises(ApiFailure) as refused:
        call("GET", f"{PODS}/b")
    assert refused.value.status == 404


def test_a_list_comes_in_pages_of_one_moment(call: Call) -> None:
    for number in range(5):
        call("POST", PODS, pod(f"p{number}"))
    first = call("GET", "/api/v1/pods?limit=2")
    assert first["kind"] == "PodList" and first["metadata"]["remainingItemCount"] == 3
    call("DELETE", f"{PODS}/p2")
    call("POST", PODS, pod("p9"))
    found, page = [each["metadata"]["name"] for each in first["items"]], first
    while "continue" in page["metadata"]:
        page = call("GET", f"/api/v1/pods?limit=2&continue={page['metadata']['continue']}")
        assert page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        found += [each["metadata"]["name"] for each in page["items"]]
    assert found == ["p0", "p1", "p2", "p3", "p4"]


def test_a_page_that_was_forgotten_has_expired(call: Call) -> None:
    with pytest.raises(ApiFailure) as refused:
        call("GET", "/api/v1/pods?continue=unknown")
    assert (refused.value.status, refused.value.reason) == (410, "Expired")


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("fieldSelector=spec.nodeName=n1", ["bound"]),
        ("fieldSelector=spec.nodeName=", ["free"]),
        ("fieldSelector=spec.nodeName!=n1,status.phase=Pending", ["free"]),
        ("fieldSelector=metadata.name==free", ["free"]),
        ("labelSelector=team=a", ["bound"]),
        ("labelSelector=team!=a", ["free"]),
        ("labelSelector=team", ["bound", "free"]),
        ("labelSelector=!team", []),
        ("labelSelector=team in (b,c)", ["free"]),
        ("labelSelector=team notin (b, c),team", ["bound"]),
    ],
)
def test_selectors_choose(call: Call, query: str, names: list[str]) -> None:
    call("POST", PODS, pod("bound", labels={"team": "a"}))
    call("POST", PODS, pod("free", labels={"team": "b"}))
    call("POST", f"{PODS}/bound/binding", binding("bound", "n1"))
    found = call("GET", f"/api/v1/pods?{query}")
    assert [each["metadata"]["name"] for each in found["items"]] == names


@pytest.mark.parametrize("query", ["fieldSelector=spec.hostname=x", "labelSelector=a b"])
def test_selectors_that_do_not_exist_are_refused(call: Call, query: str) -> None:
    with pytest.raises(ApiFailure) as refused:
        call("GET", f"/api/v1/pods?{query}")
    assert refused.value.status == 400


def test_a_binding_puts_the_pod_on_its_node_with_its_annotations(call: Call) -> None:
    made = call("POST", PODS, pod("a", annotations={"mine": "1"}))
    call(
        "POST",
        f"{PODS}/a/binding",
        binding("a", "n1", uid=made["metadata"]["uid"], annotations={"chosen": "2"}),
    )
    bound = call("GET", f"{PODS}/a")
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"] == {"mine": "1", "chosen": "2"}
    assert {"type": "PodScheduled", "status": "True"} in bound["status"]["conditions"]


def test_a_pod_is_bound_once_and_only_the_one_that_was_meant(call: Call) -> None:
    call("POST", PODS, pod("a"))
    with pytest.raises(ApiFailure, match="UID") as refused:
        call("POST", f"{PODS}/a/binding", binding("a", "n1", uid="another"))
    assert refused.value.status == 409
    call("POST", f"{PODS}/a/binding", binding("a", "n1"))
    with pytest.raises(ApiFailure, match="already assigned to node 'n1'") as refused:
        call("POST", f"{PODS}/a/binding", binding("a", "n2"))
    assert refused.value.status == 409
    assert call("GET", f"{PODS}/a")["spec"]["nodeName"] == "n1"


def test_a_bound_pod_ends_with_its_kubelet_and_is_not_bound_meanwhile(call: Call) -> None:
    call("POST", PODS, pod("a"))
    call("POST", f"{PODS}/a/binding", binding("a", "n1"))
    assert call("DELETE", f"{PODS}/a")["metadata"]["deletionTimestamp"]
    assert call("GET", f"{PODS}/a")["metadata"]["deletionTimestamp"]
    call("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 0})
    with pytest.raises(ApiFailure, match="not found"):
        call("GET", f"{PODS}/a")


def test_status_is_changed_alone(call: Call) -> None:
    call("POST", PODS, pod("a"))
    patch = {"status": {"phase": "Running"}, "metadata": {"labels": {"x": "y"}}}
    call("PATCH", f"{PODS}/a/status", patch, MERGE)
    changed = call("GET", f"{PODS}/a")
    assert changed["status"]["phase"] == "Running" and "labels" not in changed["metadata"]


def test_a_lease_is_changed_only_by_who_saw_its_last_version(call: Call) -> None:
    lease = call("POST", LEASES, {"metadata": {"name": "n"}, "spec": {"holderIdentity": "a"}})
    lease["spec"]["holderIdentity"] = "b"
    changed = call("PUT", f"{LEASES}/n", lease)
    assert changed["spec"]["holderIdentity"] == "b"
    for method, kind in (("PUT", "application/json"), ("PATCH", MERGE)):
        with pytest.raises(ApiFailure, match="modified") as refused:
            call(method, f"{LEASES}/n", lease, kind)
        assert refused.value.status == 409
    del lease["metadata"]["resourceVersion"]
    with pytest.raises(ApiFailure, match="must be specified") as refused:
        call("PUT", f"{LEASES}/n", lease)
    assert refused.value.status == 422


def test_a_lease_that_is_not_there_is_made_by_an_update(call: Call) -> None:
    made = call("PUT", f"{LEASES}/n", {"metadata": {"name": "n"}, "spec": {}})
    assert made["metadata"]["namespace"] == "default"
    with pytest.raises(ApiFailure) as refused:
        call("PATCH", f"{LEASES}/other", {"spec": {}}, MERGE)
    assert refused.value.status == 404


def test_a_patch_removes_what_is_null_and_leaves_the_rest(call: Call) -> None:
    call("POST", LEASES, {"metadata": {"name": "n", "annotations": {"a": "1", "b": "2"}}})
    patch = {"metadata": {"annotations": {"a": None, "c": "3"}}}
    changed = call("PATCH", f"{LEASES}/n", patch, MERGE)
    assert changed["metadata"]["annotations"] == {"b": "2", "c": "3"}


def test_changes_that_were_forgotten_have_expired() -> None:
    store = ObjectStore(kept_changes=2)
    first = store.version
    for number in range(3):
        store.create(LEASE, {"metadata": {"name": f"l{number}", "namespace": "n"}})
    with pytest.raises(ApiFailure, match="too old"):
        store.subscribe(LEASE, first, lambda change: None)
    seen: list[str] = []
    store.subscribe(LEASE, first + 1, lambda change: seen.append(change.now.name))
    assert seen == ["l1", "l2"]


def test_a_change_that_changes_nothing_is_none(store: ObjectStore) -> None:
    content = pod("a", namespace="n")
    pod_calls.prepare(content)
    store.create(POD, content)
    pod_calls.set_phase(store, "n", "a", "Pending")  # and when its kubelet took it in
    known = store.get(POD, "n", "a")
    pod_calls.set_phase(store, "n", "a", "Pending")
    assert store.get(POD, "n", "a").version == known.version
    pod_calls.set_phase(store, "n", "a", "Running")
    assert store.get(POD, "n", "a").version > known.version
