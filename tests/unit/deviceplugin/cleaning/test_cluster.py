"""Which nodes are cleaned when the chart goes, against the simulated API server.

What DaemonSets and kubelets do meanwhile is done whenever the cleaning waits.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.simulated_cluster import pod_calls
from benchmarks.simulated_cluster.api_server import SimulatedApiServer
from benchmarks.simulated_cluster.kinds import DAEMON_SET, EVENT, LEASE, NODE, POD
from deviceplugin.cleaning import __main__ as program
from deviceplugin.cleaning.cluster import LOOK_EVERY_S, Cleaning, Outcome
from deviceplugin.cleaning.cluster_calls import ClusterCalls
from deviceplugin.cleaning.seen_pods import HOST_PART
from deviceplugin.kube.api_client import ApiRefused, ApiServer
from libvgpu.errors import VgpuError
from support.api_server.cluster_server import ClusterServer

pytestmark = pytest.mark.process

SYSTEM, RELEASE, DOMAIN = "vgpu-system", "vgpu", "nvidia.com"
SELECTOR = "nvidia.com/gpu.present=true"
DEADLINE_S = 30.0
#: Looks after which an agent that was told to end has ended.
AGENT_ENDS_AFTER = 2
TEMPLATE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "namespace": SYSTEM,
        "labels": {"app.kubernetes.io/instance": RELEASE, "app.kubernetes.io/component": HOST_PART},
    },
    "spec": {"containers": [{"name": "clean-host", "image": "vgpu"}]},
}
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "job", "uid": "u-1"}


class World:
    """The cluster, and what its controllers and kubelets do.

    Attributes:
        on_node: what the pod that cleans a node ends with; None: it does not run.
        stuck: nodes whose agent never ends.
        made: pods that cleaned, as they were made.
    """

    def __init__(self, server: SimulatedApiServer) -> None:
        self.server, self.store = server, server.store
        self.now_s, self._looks = 0.0, 0
        self.on_node: dict[str, tuple[str, str] | None] = {}
        self.stuck: set[str] = set()
        self.made: list[dict[str, Any]] = []
        self.then: Callable[[], object] = lambda: None
        for part in ("agent", "mps"):
            notes = {"meta.helm.sh/release-name": RELEASE}  # as Helm has them
            metadata = {"name": f"{RELEASE}-{part}", "namespace": SYSTEM, "annotations": notes}
            self.store.create(DAEMON_SET, {"metadata": metadata})

    def node(
        self, name: str, selected: bool = True, agent: bool = True, lease: bool = True
    ) -> None:
        """Adds one with its agent."""
        labels = dict([SELECTOR.split("=")]) if selected else {}
        self.store.create(NODE, {"metadata": {"name": name, "labels": labels}})
        if agent:
            for part in ("agent", "mps"):
                self.pod(f"{RELEASE}-{part}-{name}", name, namespace=SYSTEM, part=part)
        if lease:
            labels = {"app.kubernetes.io/component": "vgpu-inventory"}
            metadata = {"name": name, "namespace": SYSTEM, "labels": labels}
            self.store.create(LEASE, {"metadata": metadata})

    def pod(
        self, name: str, node: str, *, namespace: str = "team", part: str = "", **limits: str
    ) -> None:
        """Adds a running pod."""
        labels = {
            "app.kubernetes.io/name": "vgpu",
            "app.kubernetes.io/instance": RELEASE,
            "app.kubernetes.io/component": part,
        }
        asked = {f"{DOMAIN}/{key.replace('_', '-')}": value for key, value in limits.items()}
        container = {"name": "c", "resources": {"limits": asked}}
        self.store.create(POD, {
            "metadata": {"name": name, "namespace": namespace, "labels": labels if part else {}},
            "spec": {"nodeName": node, "containers": [container]},
            "status": {"phase": "Running"},
        })  # fmt: skip

    def wait(self, seconds: float) -> None:
        """Time passes, and all others do their part."""
        assert seconds == LOOK_EVERY_S
        self.now_s += seconds
        self._looks += 1
        self.then()
        sets = {each.name for each in self.store.list(DAEMON_SET)[1]}
        for pod in self.store.list(POD)[1]:
            node, part = pod.content["spec"]["nodeName"], self._part(pod.content)
            is_ended = f"{RELEASE}-{part}" not in sets and node not in self.stuck
            is_ended &= pod.namespace == SYSTEM and self._looks >= AGENT_ENDS_AFTER
            if part in ("agent", "mps") and is_ended:
                self.store.delete(POD, pod.namespace, pod.name)
            elif part == HOST_PART and pod.content["status"]["phase"] == "Pending":
                self._clean(pod.namespace, pod.name, node)

    def _clean(self, namespace: str, name: str, node: str) -> None:
        self.made.append(self.store.get(POD, namespace, name).copy())
        assert not [
            each
            for each in self.store.list(POD)[1]
            if each.content["spec"]["nodeName"] == node
            and self._part(each.content) in ("agent", "mps")
        ], "the agent would make again what is removed"
        said = self.on_node.get(node, ("Succeeded", "/run/vgpu /var/lib/vgpu"))
        if said is None:
            return
        phase, message = said

        def end(pod: dict[str, Any]) -> None:
            ended = {"exitCode": int(phase != "Succeeded"), "message": message}
            pod["status"] |= {
                "phase": phase,
                "containerStatuses": [{"state": {"terminated": ended}}],
            }

        self.store.change(POD, namespace, name, end)

    @staticmethod
    def _part(pod: Any) -> str:
        return str((pod["metadata"].get("labels") or {}).get("app.kubernetes.io/component", ""))

    def clean(self, api: ApiServer | None = None) -> Outcome:
        pods = ClusterCalls(api or self.server.api(), RELEASE, DOMAIN, TEMPLATE, json.dumps(OWNER))
        return Cleaning(pods, DEADLINE_S, lambda: self.now_s, self.wait).run(SELECTOR)

    def told(self) -> dict[str, str]:
        """Returns the Events, by node."""
        events = [each.content for each in self.store.list(EVENT)[1]]
        assert all((e["reason"], e["type"]) == ("HostNotCleaned", "Warning") for e in events)
        return {e["involvedObject"]["name"]: e["message"] for e in events}

    def names(self, kind: Any, namespace: str) -> list[str]:
        return [each.name for each in self.store.list(kind)[1] if each.namespace == namespace]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ClusterServer(tmp_path, SYSTEM) as server:
        yield World(server)


def test_all_nodes_are_cleaned_and_nothing_is_left_in_the_cluster(world: World) -> None:
    world.node("a")
    world.node("b")
    world.pod("plain", "a")

    outcome = world.clean()

    assert (sorted(outcome.cleaned), outcome.left) == (["a", "b"], {})
    assert world.names(DAEMON_SET, SYSTEM) == world.names(LEASE, SYSTEM) == []
    assert world.names(POD, SYSTEM) == []
    assert world.names(POD, "team") == ["plain"]
    assert world.told() == {}


@pytest.mark.parametrize(
    "limits",
    [
        {"vgpu_core": "30"},
        {"mps_memory": "8"},
        {"gpu": "1"},
        {"gpu.shared": "1"},
        {"mig_1g.5gb": "1"},
    ],
    ids=str,
)
def test_a_node_on_which_a_pod_has_a_slice_is_never_touched(
    world: World, limits: dict[str, str]
) -> None:
    world.node("a")
    world.node("b")
    world.pod("train", "b", **limits)

    outcome = world.clean()

    assert outcome.cleaned == ["a"]
    assert outcome.left == {"b": "the pod team/train has a slice there"}
    assert [pod["spec"]["nodeName"] for pod in world.made] == ["a"]
    assert world.names(LEASE, SYSTEM) == ["b"]
    assert "team/train has a slice there" in world.told()["b"]
    assert "docs/operations.md" in world.told()["b"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_and_one_that_asks_for_nothing_keep_no_node(
    world: World, phase: str
) -> None:
    world.node("a")
    world.pod("ended", "a", vgpu_core="30")
    pod_calls.set_phase(world.store, "team", "ended", phase)
    world.pod("marked", "a", gpu_slice="0")

    assert world.clean().cleaned == ["a"]


def test_it_asks_for_what_the_chart_gives_it_rights_to(world: World) -> None:
    """Which these are, tests/e2e/test_chart_guards.py has."""
    world.node("a")
    world.node("b")
    world.pod("train", "b", vgpu_core="30")
    world.clean()

    assert set(world.server.counted) == {
        "GET nodes",
        "GET pods",
        "GET leases",
        "POST events",
        "GET daemonsets",
        "DELETE daemonsets",
        "POST pods",
        "DELETE pods",
        "DELETE leases",
    }


def test_a_pod_that_is_being_deleted_is_waited_for(world: World) -> None:
    world.node("a")
    world.pod("train", "a", vgpu_core="30")
    pod_calls.delete(world.store, "team", "train", 30, "")
    world.then = lambda: (
        world.store.delete(POD, "team", "train")
        if world.now_s == 10 and world.names(POD, "team")
        else None
    )

    assert world.clean().cleaned == ["a"]
    assert world.now_s > 10


def test_what_the_node_says_is_what_is_told(world: World) -> None:
    world.node("a")
    world.on_node["a"] = ("Failed", "process 7 (python) has a slice, mounted at /run/vgpu/usage")

    outcome = world.clean()

    assert outcome.cleaned == []
    assert "process 7 (python) has a slice" in world.told()["a"]
    assert world.names(LEASE, SYSTEM) == ["a"]
    assert world.names(POD, SYSTEM) == []


def test_the_deadline_ends_it_and_names_what_was_waited_for(world: World) -> None:
    world.node("agent-stays")
    world.node("no-kubelet")
    world.node("fine")
    world.stuck = {"agent-stays"}
    world.on_node["no-kubelet"] = None

    outcome = world.clean()

    assert outcome.cleaned == ["fine"]
    assert world.now_s == DEADLINE_S
    assert "vgpu-agent-agent-stays has not ended" in outcome.left["agent-stays"]
    assert "the pod that cleans the node is Pending" in outcome.left["no-kubelet"]
    assert set(world.told()) == {"agent-stays", "no-kubelet"}
    # What did not run must not run later, when somebody else looks after the node.
    (left,) = [
        each
        for each in world.store.list(POD)[1]
        if each.namespace == SYSTEM and each.content["spec"]["nodeName"] == "no-kubelet"
    ]
    assert left.content["metadata"]["deletionTimestamp"]


def test_nodes_that_lost_the_label_are_found_and_nodes_that_are_gone_are_not(world: World) -> None:
    world.node("has-a-lease", selected=False, agent=False)
    world.node("has-an-agent", selected=False, lease=False)
    world.node("selected", agent=False, lease=False)
    world.node("never-ours", selected=False, agent=False, lease=False)
    labels = {"app.kubernetes.io/component": "vgpu-inventory"}
    gone = {"name": "gone", "namespace": SYSTEM, "labels": labels}
    world.store.create(LEASE, {"metadata": gone})

    assert sorted(world.clean().cleaned) == ["has-a-lease", "has-an-agent", "selected"]


def test_the_pod_runs_on_its_node_and_goes_with_the_job(world: World) -> None:
    world.node("a")
    world.clean()

    (made,) = world.made
    assert made["spec"]["nodeName"] == "a"
    assert made["metadata"]["ownerReferences"] == [OWNER]
    assert made["spec"]["containers"] == TEMPLATE["spec"]["containers"]  # type: ignore[index]


def test_a_second_try_of_the_job_goes_on_with_the_pods_of_the_first(world: World) -> None:
    world.node("a", agent=False)
    pods = ClusterCalls(world.server.api(), RELEASE, DOMAIN, TEMPLATE, "")
    pods.start("a")
    pods.start("a")
    assert len([n for n in world.names(POD, SYSTEM) if HOST_PART in n]) == 1

    assert world.clean().cleaned == ["a"]


def test_an_api_server_that_is_away_for_a_while_changes_nothing(world: World) -> None:
    world.node("a")

    def away() -> None:
        world.server.faults.is_away = 3 <= world.now_s < 8

    world.then = away

    assert world.clean().cleaned == ["a"]
    assert world.now_s >= 8


def test_a_node_where_another_release_has_an_agent_is_left_alone(world: World) -> None:
    world.node("a")
    world.pod("new-agent-x", "a", namespace="other", part="agent")

    outcome = world.clean()

    assert outcome.left == {"a": "the pod other/new-agent-x is another release's"}
    assert world.made == []


def test_what_helm_did_not_install_is_left(world: World) -> None:
    """Who applies what `helm template` prints would start the hook with the agents."""
    world.node("a")
    world.store.change(
        DAEMON_SET, SYSTEM, "vgpu-agent", lambda each: each["metadata"].pop("annotations")
    )

    with pytest.raises(VgpuError, match="vgpu-agent is not one that Helm made"):
        world.clean()
    assert len(world.names(DAEMON_SET, SYSTEM)) == 2
    assert world.made == []


def test_a_second_try_goes_on_where_the_first_has_ended_the_agents(world: World) -> None:
    world.node("a", agent=False)
    for name in world.names(DAEMON_SET, SYSTEM):
        world.store.delete(DAEMON_SET, SYSTEM, name)

    assert world.clean().cleaned == ["a"]


def test_an_object_that_cannot_be_understood_stops_it(world: World) -> None:
    """It might be a pod with a slice."""
    world.node("a")
    world.store.create(
        POD,
        {
            "metadata": {"name": "odd", "namespace": "team"},
            "spec": {"nodeName": "a", "containers": "none"},
        },
    )

    with pytest.raises(ApiRefused, match="unknown form"):
        world.clean()
    assert world.made == []


def test_the_program_needs_a_service_account_and_a_pod() -> None:
    asked = ["cluster", "--release=x", "--node-pod={}"]
    told = CliRunner().invoke(program.main, asked, env={"KUBERNETES_SERVICE_HOST": ""})
    assert (told.exit_code, "no service account" in told.output) == (2, True)


def test_the_program_says_why_it_may_not(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    api = world.server.api()
    monkeypatch.setattr(ApiServer, "from_environment", lambda environ: api)
    world.server.token = "another"

    told = CliRunner().invoke(program.main, ["cluster", "--release=x", "--node-pod={}"])

    assert told.exit_code == 1
    assert "Unauthorized" in told.output
