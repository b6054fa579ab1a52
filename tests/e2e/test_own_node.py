"""A node agent's token changes nothing outside its node: objects and verbs, on a real API server.

The attacker has what root on one node has: the token of the agent's pod there.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from support.cluster import control_plane, install, kubernetes_versions
from support.cluster.control_plane import ControlPlane, collection
from support.cluster.go_programs import BUILD_TIMEOUT_S, DOWNLOAD_TIMEOUT_S
from support.waiting import wait_until

NAMESPACE, ACCOUNT = "vgpu-system", "vgpu-agent"
OWN, OTHER = "node-a", "node-b"
#: With every right that the chart can give to agents.
VALUES = "labels.nodeFeatureApi=true,labels.patchNode=true,scheduler.enabled=true"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
FEATURES = f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{NAMESPACE}/nodefeatures"
EVENTS, NODES = "/api/v1/namespaces/team-a/events", "/api/v1/nodes"
#: Events about what is of no namespace.
NODE_EVENTS = "/api/v1/namespaces/default/events"
NODE_OF_FEATURE = "nfd.node.kubernetes.io/node-name"
#: Of all that a token may do but read, outside its own node too.
HARMLESS = {"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"}

pytestmark = [
    pytest.mark.network,
    pytest.mark.timeout(DOWNLOAD_TIMEOUT_S + BUILD_TIMEOUT_S + 240),
]
Object = dict[str, Any]


class Attacker:
    """Whoever has the token of an agent."""

    def __init__(self, http: httpx2.Client) -> None:
        self._http = http

    def make(self, path: str, manifest: Object) -> str:
        """Returns why an object is not made, empty if it is."""
        return self._ask("POST", path, manifest, "application/json")

    def merge(self, path: str, patch: Object) -> str:
        """Returns why an object is not changed, empty if it is."""
        return self._ask("PATCH", path, patch, "application/merge-patch+json")

    def rights(self, namespace: str) -> set[tuple[str, str]]:
        """Returns each resource and verb that changes something, as the API server says."""
        path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
        answer = self._http.post(path, json={"spec": {"namespace": namespace}})
        return {
            (resource, verb)
            for rule in answer.json()["status"]["resourceRules"]
            for resource in rule.get("resources") or ()
            for verb in rule["verbs"]
            if verb not in ("get", "list", "watch") and resource not in HARMLESS
        }

    def _ask(self, method: str, path: str, content: Object, kind: str) -> str:
        answer = self._http.request(
            method, path, content=json.dumps(content), headers={"Content-Type": kind}
        )
        return "" if answer.is_success else f"{answer.status_code} {answer.json()['message']}"


class Cluster:
    """A control plane with the chart's objects, two nodes, and what is theirs."""

    def __init__(self, base: Path, minor: str) -> None:
        self.plane = ControlPlane(base, kubernetes_versions.build(minor).programs)
        self._unbound = self.plane.account(NAMESPACE, ACCOUNT)

    def start(self) -> None:
        self.plane.start()
        for manifest in filter(None, yaml.safe_load_all(install.render("--set", VALUES))):
            self.plane.apply(collection(manifest, NAMESPACE), manifest)
        self.plane.apply("/api/v1/namespaces", {"metadata": {"name": "team-a"}})
        self.plane.apply("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", _node_feature())
        wait_until(lambda: self.plane.find(FEATURES), "NodeFeatures are served")
        for node in (OWN, OTHER):
            self.plane.apply(NODES, {"metadata": {"name": node}})
        self.plane.apply(LEASES, lease(OTHER))
        self.plane.apply(FEATURES, feature(OTHER))
        self.plane.apply(EVENTS, happening("of-the-kubelet", OTHER, component="kubelet"))
        self.agent = self._attacker(self.plane.agents_account(NAMESPACE, ACCOUNT, OWN))
        self.unbound = self._attacker(self._unbound)
        probe = lease("probe")
        wait_until(lambda: self.agent.make(f"{LEASES}?dryRun=All", probe), "the policy is there")

    def _attacker(self, account: Path) -> Attacker:
        return Attacker(self.plane.client((account / "token").read_text()))


def lease(node: str) -> Object:
    return {"metadata": {"name": node}, "spec": {"holderIdentity": node}}


def feature(node: str, name: str = "") -> Object:
    labels = {NODE_OF_FEATURE: node}
    return {
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeature",
        "metadata": {"name": f"nvidia-features-for-{name or node}", "labels": labels},
    }


def happening(name: str, node: str, component: str = ACCOUNT, about: str = "") -> Object:
    return {
        "metadata": {"name": name},
        "involvedObject": {"kind": "Node", "name": about}
        if about
        else {"kind": "Pod", "name": "p", "namespace": "team-a"},
        "reason": "UsageDamaged",
        "type": "Warning",
        "source": {"component": component, "host": node},
        "reportingComponent": component,
        "reportingInstance": node,
    }


def _node_feature() -> Object:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"kind": "NodeFeature", "plural": "nodefeatures", "singular": "nodefeature"}
    version = {"name": "v1alpha1", "served": True, "storage": True}
    return {
        "metadata": {"name": "nodefeatures.nfd.k8s-sigs.io"},
        "spec": {
            "group": "nfd.k8s-sigs.io",
            "names": names | {"listKind": "NodeFeatureList"},
            "scope": "Namespaced",
            "versions": [version | {"schema": {"openAPIV3Schema": schema}}],
        },
    }


@pytest.fixture(scope="module", params=kubernetes_versions.asked_for())
def cluster(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Cluster]:
    if why_not := control_plane.missing() or install.missing():
        pytest.skip(why_not)
    cluster = Cluster(tmp_path_factory.mktemp("plane"), request.param)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.plane.stop()


def test_an_agent_writes_all_that_is_of_its_own_node(cluster: Cluster) -> None:
    agent, labels = cluster.agent, {"metadata": {"labels": {"a": "b"}}}

    assert agent.make(LEASES, lease(OWN)) == ""
    assert agent.merge(f"{LEASES}/{OWN}", labels) == ""
    assert agent.merge(f"{NODES}/{OWN}", labels) == ""
    assert agent.make(FEATURES, feature(OWN)) == ""
    assert agent.merge(f"{FEATURES}/nvidia-features-for-{OWN}", {"spec": {"labels": {}}}) == ""
    assert agent.make(EVENTS, happening("of-a-pod", OWN)) == ""
    assert agent.merge(f"{EVENTS}/of-a-pod", {"count": 2}) == ""
    assert agent.make(NODE_EVENTS, happening("of-the-node", OWN, about=OWN)) == ""


#: What it must not: method, path, content.
WRONG: dict[str, tuple[str, str, Object]] = {
    "an inventory that is not there": ("make", LEASES, lease("node-c")),
    "an inventory by a made-up name": (
        "make", LEASES, {"metadata": {"generateName": OWN}, "spec": {}}),
    "a false inventory": (
        "merge", f"{LEASES}/{OTHER}",
        {"metadata": {"annotations": {"nvidia.com/vgpu.inventory": "{}"}}}),
    "the election of the extender": (
        "merge", LEASES.replace(NAMESPACE, f"{NAMESPACE}-election") + "/vgpu-scheduler",
        {"spec": {"holderIdentity": "attacker"}}),
    "labels of another Node": (
        "merge", f"{NODES}/{OTHER}", {"metadata": {"labels": {"nvidia.com/gpu.present": "false"}}}),
    "a taint of another Node": ("merge", f"{NODES}/{OTHER}", {"spec": {"unschedulable": True}}),
    "features of another node": ("make", FEATURES, feature("node-c")),
    "features of another node under its own name": (
        "merge", f"{FEATURES}/nvidia-features-for-{OWN}",
        {"metadata": {"labels": {NODE_OF_FEATURE: OTHER}}}),
    "features of another node that are there": (
        "merge", f"{FEATURES}/nvidia-features-for-{OTHER}", {"spec": {"labels": {"a": "b"}}}),
    "an Event in another node's name": ("make", EVENTS, happening("x", OTHER)),
    "an Event about another Node": ("make", NODE_EVENTS, happening("y", OWN, about=OTHER)),
    "an Event of a kubelet": ("merge", f"{EVENTS}/of-the-kubelet", {"message": "all is well"}),
    "an Event of a kubelet as its own": (
        "merge", f"{EVENTS}/of-the-kubelet", {"reportingInstance": OWN, "message": "well"}),
    "a Binding": (
        "make", "/api/v1/namespaces/team-a/pods/p/binding",
        {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": OTHER}}),
    "a pod": (
        "make", "/api/v1/namespaces/team-a/pods",
        {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}),
    "a token": (
        "make", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token", {"spec": {}}),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_it_writes_nothing_of_another_node(cluster: Cluster, what: str) -> None:
    method, path, content = WRONG[what]
    if "its own name" in what:
        cluster.agent.make(FEATURES, feature(OWN))

    refused = getattr(cluster.agent, method)(path, content)

    assert refused.startswith("403 "), refused
    if path.partition(f"/{OTHER}")[0] in (LEASES, NODES, FEATURES, EVENTS, NODE_EVENTS):
        assert f"the node agent of {OWN} may write about its own node alone" in refused


def test_a_token_of_no_node_writes_nothing(cluster: Cluster) -> None:
    refused = cluster.unbound.make(LEASES, lease(OWN))

    assert refused.startswith("403 ")
    assert "bound to no pod of a node" in refused


def test_it_has_no_other_rights_than_those_that_were_tried(cluster: Cluster) -> None:
    cluster_wide = {("events", "create"), ("events", "patch"), ("nodes", "patch")}
    own = {(r, v) for r in ("leases", "nodefeatures") for v in ("create", "patch")}

    assert cluster.agent.rights("team-a") == cluster_wide
    assert cluster.agent.rights(f"{NAMESPACE}-election") == cluster_wide
    assert cluster.agent.rights(NAMESPACE) == cluster_wide | own


def test_what_others_write_is_not_judged(cluster: Cluster) -> None:
    cluster.plane.patch(f"{LEASES}/{OTHER}", {"metadata": {"labels": {"a": "b"}}})
    cluster.plane.patch(f"{NODES}/{OTHER}", {"metadata": {"labels": {"a": "b"}}})
