"""`kubectl vgpu` as typed, with a real kubectl, through a real API server.

The agents behind it are stand-ins that answer with pages as agents write them, and one is a real
agent on a simulated machine. In the long form only: with nothing cached the API server takes
minutes of two cores to build.
"""

import contextlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import ROOT
from support.cluster import control_plane, kubernetes_versions, stand_in_agents
from support.cluster.control_plane import ControlPlane, collection
from support.cluster.go_programs import BUILD_TIMEOUT_S, DOWNLOAD_TIMEOUT_S
from support.cluster.stand_in_agents import (
    NAMESPACE,
    StandInAgent,
    StandInKubelet,
    make_pod,
    page,
    remove_pods,
)
from support.ended import run_to_end
from support.node.simulated import CONFIG, SimulatedNode
from support.output_schemas import check
from support.ports import held_port
from support.waiting import PATIENCE_S, wait_until

RIGHTS = ROOT / "deploy/examples/kubectl-vgpu/rights.yaml"
RIGHTS_TO_SET = RIGHTS.with_name("rights-to-set.yaml")
MANY, AT_ONCE = 50, 20
GIB = 1 << 30
_TESTS_S = 120.0

pytestmark = [
    pytest.mark.network,
    pytest.mark.timeout(DOWNLOAD_TIMEOUT_S + BUILD_TIMEOUT_S + _TESTS_S),
]


class Cluster:
    """A control plane with the chart's namespace, and users of it."""

    def __init__(self, base: Path) -> None:
        self.base = base
        programs = kubernetes_versions.build().programs
        self.plane = ControlPlane(base / "plane", programs)
        self.plane.base.mkdir()
        users = {
            name: (self.plane.account(NAMESPACE, name) / "token").read_text()
            for name in ("reader", "stranger", "lister", "setter")
        }
        self.plane.start()
        self.kubelet = StandInKubelet(self.plane)
        plugin = stand_in_agents.plugin(base / "bin")
        self.path = os.pathsep.join([str(plugin), str(programs), os.environ["PATH"]])
        self.kubeconfigs = {
            name: stand_in_agents.kubeconfig(self.plane, base / name, token, "team-b")
            for name, token in {**users, "admin": "admin"}.items()
        }
        for name in (NAMESPACE, "team-a", "team-b"):
            manifest = {"kind": "Namespace", "metadata": {"name": name}}
            self.plane.apply(collection(manifest), manifest)
        for file, users_of in ((RIGHTS, ("reader", "setter")), (RIGHTS_TO_SET, ("setter",))):
            for manifest in yaml.safe_load_all(file.read_text()):
                if manifest["kind"] == "RoleBinding":
                    manifest["subjects"] = [
                        {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
                        for name in users_of
                    ]
                self.plane.apply(collection(manifest), manifest)

    def vgpu(
        self, *arguments: str, user: str = "reader", **variables: str
    ) -> "subprocess.CompletedProcess[str]":
        """Types ``kubectl vgpu …``."""
        environment = os.environ | {
            "PATH": self.path,
            "KUBECONFIG": str(self.kubeconfigs[user]),
            "HOME": str(self.base),
            **variables,
        }
        return run_to_end(["kubectl", "vgpu", *arguments], env=environment)

    def rows(self, verb: str, *arguments: str, status: int = 0) -> list[dict[str, Any]]:
        done = self.vgpu(verb, *arguments, "-o", "json")
        assert done.returncode == status, done.stderr
        return check(f"kubectl-{verb}", done.stdout)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    why_not = control_plane.missing()
    if why_not:
        pytest.skip(why_not)
    with tempfile.TemporaryDirectory(prefix="vgpu-", dir="/tmp") as name:
        cluster = Cluster(Path(name))
        try:
            yield cluster
        finally:
            cluster.kubelet.stop()
            cluster.plane.stop()


@pytest.fixture
def agents(cluster: Cluster) -> Iterator[dict[str, StandInAgent]]:
    """Nodes gpu-1, gpu-2 and gpu-10 with a slice each; gpu-2 has another of team-b."""
    held = {"gpu-1": ["team-a/one"], "gpu-2": ["team-a/two", "team-b/three"], "gpu-10": []}
    running = {node: StandInAgent({"/v1/slices": page(node, *pods)}) for node, pods in held.items()}
    try:
        for node, agent in running.items():
            make_pod(cluster.plane, cluster.kubelet, node, agent.port)
        yield running
    finally:
        remove_pods(cluster.plane)
        for agent in running.values():
            agent.stop()


def test_ps_shows_the_slices_of_all_nodes(
    cluster: Cluster, agents: dict[str, StandInAgent]
) -> None:
    rows = cluster.rows("ps")
    assert [(row["node"], row["pod"], row["memory_used_bytes"]) for row in rows] == [
        ("gpu-1", "one", GIB),
        ("gpu-2", "two", GIB),
        ("gpu-2", "three", GIB),
    ]
    lines = cluster.vgpu("ps").stdout.splitlines()
    assert lines[0].split()[:3] == ["NODE", "ALLOCATION", "POD"]
    assert [line.split()[0] for line in lines[1:]] == ["gpu-1", "gpu-2", "gpu-2"]
    assert {row["pod"] for row in cluster.rows("ps", "-n", "team-b")} == {"three"}


def test_status_shows_the_gpus_of_all_nodes_by_the_numbers_in_their_names(
    cluster: Cluster, agents: dict[str, StandInAgent]
) -> None:
    rows = cluster.rows("status")
    assert [(r["node"], r["containers"], r["memory_allocated_bytes"] // GIB) for r in rows] == [
        ("gpu-1", 1, 4),
        ("gpu-2", 2, 8),
        ("gpu-10", 0, 0),
    ]
    shown = cluster.vgpu("status")
    assert shown.stdout.splitlines()[0].split()[:2] == ["NODE", "GPU"]
    assert "at most 70 core and 12 GiB on one" in shown.stderr


@pytest.mark.parametrize(
    "where",
    [
        pytest.param(["--node", "gpu-2"], id="node"),
        pytest.param(["--pod", "team-b/three"], id="pod-with-namespace"),
        pytest.param(["--pod", "three"], id="pod-in-the-namespace-of-the-context"),
        pytest.param(["--pod", "three", "-n", "team-b"], id="pod-in-a-namespace"),
    ],
)
def test_one_node_is_chosen_by_its_name_or_by_a_pod(
    cluster: Cluster, agents: dict[str, StandInAgent], where: list[str]
) -> None:
    pods = "/api/v1/namespaces/team-b/pods"
    container = {"name": "c", "image": "i"}
    if cluster.plane.find(f"{pods}/three") is None:
        cluster.plane.apply(
            pods,
            {
                "metadata": {"name": "three"},
                "spec": {"nodeName": "gpu-2", "containers": [container]},
            },
        )
    done = cluster.vgpu("ps", *where, "-o", "json", user="admin")
    assert done.returncode == 0, done.stderr
    assert {row["node"] for row in json.loads(done.stdout)} == {"gpu-2"}
    assert [agents[node].asked for node in ("gpu-1", "gpu-10")] == [{}, {}]


def test_a_node_that_does_not_answer_is_named_and_the_others_are_shown(
    cluster: Cluster, agents: dict[str, StandInAgent]
) -> None:
    agents["gpu-1"].stop()
    agents["gpu-10"].pages.clear()
    done = cluster.vgpu("ps")
    assert done.returncode == 1
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["gpu-2", "gpu-2"]
    dead, older = done.stderr.splitlines()
    assert dead.startswith("kubectl vgpu: node gpu-1: its agent vgpu-system/vgpu-agent-gpu-1 does")
    assert "Connection refused" in dead
    assert older.startswith("kubectl vgpu: node gpu-10: ") and "it is older" in older


def test_a_node_that_hangs_holds_nobody_up_longer_than_the_timeout(
    cluster: Cluster, agents: dict[str, StandInAgent]
) -> None:
    agents["gpu-2"].hold.clear()
    began_s = time.monotonic()
    done = cluster.vgpu("ps", "--timeout", "0.5")
    assert time.monotonic() - began_s < PATIENCE_S / 2
    agents["gpu-2"].hold.set()
    assert (done.returncode, "no answer within 0.5 s" in done.stderr) == (1, True), done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["gpu-1"]


def test_pods_that_do_not_run_are_told_as_the_api_server_has_them(
    cluster: Cluster, agents: dict[str, StandInAgent]
) -> None:
    make_pod(cluster.plane, cluster.kubelet, "gpu-3", agents["gpu-1"].port, phase="Pending")
    done = cluster.vgpu("status")
    assert done.returncode == 1
    assert "node gpu-3: its agent's pod vgpu-agent-gpu-3 is Pending" in done.stderr


@pytest.mark.parametrize(
    ("user", "right"),
    [
        pytest.param("stranger", "the right to list pods in namespace vgpu-system", id="pods"),
        pytest.param(
            "lister",
            "the rights to get and create pods/portforward in namespace vgpu-system",
            id="pages-of-pods",
        ),
    ],
)
def test_who_lacks_a_right_is_told_once_which_and_who_gives_it(
    cluster: Cluster, agents: dict[str, StandInAgent], user: str, right: str
) -> None:
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    subject = {"kind": "ServiceAccount", "name": "lister", "namespace": NAMESPACE}
    role = {"kind": "Role", "metadata": {"name": "lister"}, "rules": [rule]}
    binding = {
        "kind": "RoleBinding",
        "metadata": {"name": "lister"},
        "subjects": [subject],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "lister"},
    }
    for manifest in (role, binding):
        where = collection(manifest, NAMESPACE)
        if cluster.plane.find(f"{where}/lister") is None:
            cluster.plane.apply(where, manifest)
    done = cluster.vgpu("ps", user=user)
    refused, hint = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (1, "")
    assert refused.startswith("kubectl vgpu: the API server refuses: pods")
    assert f'cannot {"list" if user == "stranger" else "get"} resource "pods' in refused
    assert right in hint and "deploy/examples/kubectl-vgpu/rights.yaml" in hint


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--node", "gpu-7"], "nodes that have one: gpu-1, gpu-10, gpu-2", id="node"),
        pytest.param(
            ["--agent-namespace", "team-a"], "there is no agent's pod in namespace", id="where"
        ),
        pytest.param(["--pod", "team-a/none"], 'pods "none" not found', id="pod"),
        pytest.param(["--pod", "a/b/c"], "neither NAME nor NAMESPACE/NAME", id="name"),
        pytest.param(["--context", "other"], 'context "other" does not exist', id="context"),
    ],
)
def test_what_is_not_there_is_one_sentence(
    cluster: Cluster, agents: dict[str, StandInAgent], arguments: list[str], said: str
) -> None:
    done = cluster.vgpu("ps", *arguments, user="admin")
    assert done.returncode in (1, 2)
    assert said in done.stderr.splitlines()[0] and "Traceback" not in done.stderr


def test_an_api_server_that_is_away_is_told(cluster: Cluster) -> None:
    config = json.loads(cluster.kubeconfigs["admin"].read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    away = cluster.base / "away"
    away.write_text(json.dumps(config))
    done = cluster.vgpu("ps", KUBECONFIG=str(away))
    assert done.returncode == 1
    assert "the API server cannot be reached: dial tcp 127.0.0.1:1" in done.stderr


@contextlib.contextmanager
def real_agent(
    cluster: Cluster, base: Path, spec: str, config: str = CONFIG
) -> Iterator[SimulatedNode]:
    """Gives a node whose agent has a pod in the cluster."""
    port = held_port()
    options = [f"--pages-address=127.0.0.1:{port}", "--node-name=real"]
    with SimulatedNode(base, spec, config, options=options) as node:
        make_pod(cluster.plane, cluster.kubelet, "real", port)
        try:
            yield node
        finally:
            remove_pods(cluster.plane)


def test_a_real_agent_answers(cluster: Cluster, short_path: Path) -> None:
    with real_agent(cluster, short_path, "t4*2") as node:
        node.admit("train", vgpu_core=30, vgpu_memory=4)
        wait_until(lambda: "default/train/c" in cluster.vgpu("ps").stdout, "its pod is known")
        (row,) = cluster.rows("ps")
        assert (row["node"], row["core_percent"], row["state"]) == ("real", 30, "idle")
        gpus = cluster.rows("status")
        assert [(g["product"], g["source"], g["health"]) for g in gpus] == [
            ("Tesla T4", "simulated", ""),
            ("Tesla T4", "simulated", ""),
        ]
        (facts,) = cluster.rows("describe", "default/train")
        (device,) = facts["devices"]
        assert (facts["node"], facts["owner"]) == ("real", "default/train/c")
        assert (device["asked_core_percent"], device["memory_from"]) == (30, "request")
        assert facts["directory"].startswith(f"{short_path}/r/allocations/")
        (facts,) = cluster.rows("describe", device["gpu_uuid"])
        assert [each["who"] for each in facts["slices"]] == ["default/train/c"]
        levels = {row["check"]: row["level"] for row in cluster.rows("doctor")}
        assert levels["agent"] == levels["config"] == levels["resources"] == "ok"
        refused = cluster.vgpu("describe", "default/big")
        assert "neither" not in refused.stderr and refused.returncode == 1


def test_set_does_what_it_shows(cluster: Cluster, short_path: Path) -> None:
    config = CONFIG + "limits:\n- match: {}  # everybody\n  core: 40\n"
    name = "vgpu-config"
    config_maps = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    cluster.plane.apply(config_maps, {"metadata": {"name": name}, "data": {"config.yaml": config}})
    values = ["-n", "default", "--core", "20", "--memory", "3GiB"]
    with real_agent(cluster, short_path, "t4", config) as node:
        node.admit("train", vgpu_core=50, vgpu_memory=4)
        wait_until(lambda: "default/train/c" in cluster.vgpu("ps").stdout, "its pod is known")
        refused = cluster.vgpu("set", *values)
        assert refused.returncode == 1
        assert "the right to get configmaps in namespace vgpu-system" in refused.stderr
        assert "rights-to-set.yaml" in refused.stderr

        shown = cluster.vgpu("set", *values, "--dry-run", "-o", "json", user="setter")
        assert shown.returncode == 0, shown.stderr
        rows = {row["value"]: row for row in check("kubectl-set", shown.stdout)}
        assert cluster.plane.find(f"{config_maps}/{name}")["data"] == {"config.yaml": config}  # type: ignore[index]
        assert [(rows[k]["old"], rows[k]["new"]) for k in ("core_percent", "memory_bytes")] == [
            (40, 20),
            (4 * GIB, 3 * GIB),
        ]

        done = cluster.vgpu("set", *values, user="setter")
        assert done.returncode == 0, done.stderr
        text = cluster.plane.find(f"{config_maps}/{name}")["data"]["config.yaml"]  # type: ignore[index]
        assert "# everybody" in text
        (node.base / "config.yaml").write_text(text)  # as a kubelet does
        wait_until(lambda: cluster.rows("ps")[0]["core_percent"] == 20, "the agent has it")
        assert cluster.rows("ps")[0]["memory_limit_bytes"] == 3 * GIB


def test_many_nodes_are_asked_at_once(cluster: Cluster) -> None:
    pods = [f"team-a/pod-{n}" for n in range(8)]
    nodes = [f"many-{n}" for n in range(MANY)]
    agents = [StandInAgent({"/v1/slices": page(n, *pods)}) for n in nodes]
    try:
        for node, agent in zip(nodes, agents, strict=True):
            agent.hold.clear()
            make_pod(cluster.plane, cluster.kubelet, node, agent.port)
        with ThreadPoolExecutor(1) as runner:
            listing = runner.submit(cluster.vgpu, "ps")
            try:
                wait_until(
                    lambda: sum(bool(agent.asked) for agent in agents) >= AT_ONCE,
                    "so many are asked before one has answered",
                )
            finally:
                for agent in agents:
                    agent.hold.set()
            done = listing.result()
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) == 1 + MANY * len(pods)
    finally:
        remove_pods(cluster.plane)
        for agent in agents:
            agent.stop()
