"""The plain manifests against the code that they start: names, paths, ports, rights."""

import ast
import os
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from benchmarks.simulated_cluster.calls import place_of
from benchmarks.simulated_cluster.kinds import POD
from deviceplugin import __main__ as agent_command
from deviceplugin.config.loading import load_config
from deviceplugin.kube import node_pods
from deviceplugin.kube.event_sender import EventSender
from deviceplugin.kube.lease_objects import NodeLease
from deviceplugin.kube.notices import Record
from deviceplugin.kube.pod_labels import PodLabels
from deviceplugin.kubelet import answer_codec
from deviceplugin.model.allocations import Owner
from deviceplugin.model.notices import EventReason, Notice
from deviceplugin.model.units import Half
from deviceplugin.mps import runner as mps_command
from deviceplugin.mps.control_pipe import daemon_environment
from deviceplugin.policy.limits.asked import CONTAINER_PIPE_DIRECTORY
from deviceplugin.recovery.kubelet_checkpoint import KubeletCheckpoint
from deviceplugin.store.container_answer import LIST_DIRECTORY, VISIBLE_DEVICES
from deviceplugin.store.shim_builds import CONTAINER_DIRECTORY
from deviceplugin.store.slice_files import PRELOAD_FILE
from libvgpu.allocation_dirs import default_run_dir
from libvgpu.limits import Family
from support import ROOT
from support.api_server.cluster_server import ClusterServer
from support.cluster import install
from support.waiting import wait_until

Object = dict[str, Any]


def one(kind: str, part: str) -> Object:
    """The object of a kind whose name ends so."""
    (found,) = [
        o for o in install.manifests() if o["kind"] == kind and o["metadata"]["name"].endswith(part)
    ]
    return found


def pod_of(part: str) -> Object:
    return one("DaemonSet", part)["spec"]["template"]["spec"]  # type: ignore[no-any-return]


def container_of(part: str) -> Object:
    (container,) = pod_of(part)["containers"]
    return container  # type: ignore[no-any-return]


def mounts_of(part: str) -> dict[str, str]:
    """Path in the container -> what is there, as the node calls it."""
    volumes = {
        v["name"]: v.get("hostPath", {}).get("path") or v["configMap"]["name"]
        for v in pod_of(part)["volumes"]
    }
    mounts = container_of(part)["volumeMounts"]
    assert not [m for m in mounts if "subPath" in m], "a subPath never follows an edit"
    return {m["mountPath"]: volumes[m["name"]] for m in mounts}


@pytest.mark.parametrize(
    ("part", "module", "command"),
    [
        ("-agent", "deviceplugin", agent_command.main),
        ("-mps", "deviceplugin.mps", mps_command.main),
    ],
)
def test_what_is_started_takes_these_options(
    part: str, module: str, command: click.Command, tmp_path: Path
) -> None:
    container = container_of(part)

    assert container["command"] == ["python", "-m", module]
    context = command.make_context(module, list(container["args"]))  # an unknown one raises
    config = tmp_path / "config.yaml"
    config.write_text(one("ConfigMap", "-config")["data"]["config.yaml"])
    assert load_config(config).fractional
    assert str(context.params["config"].parent) in mounts_of(part)
    assert context.params["config"].name in one("ConfigMap", "-config")["data"]


def test_the_agent_leaves_the_daemons_to_their_own_daemon_set() -> None:
    context = agent_command.main.make_context("agent", list(container_of("-agent")["args"]))

    assert context.params["spawn_mps"] is False
    assert one("DaemonSet", "-mps")["spec"]["updateStrategy"] == {"type": "OnDelete"}


def test_paths_on_the_node_are_the_codes_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers name paths of the node as the agent sees them, which is root there."""
    monkeypatch.delenv("VGPU_RUN_DIR", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    context = agent_command.main.make_context("agent", list(container_of("-agent")["args"]))
    defaults = {p.name: p.default for p in agent_command.main.params}
    mounts = mounts_of("-agent")

    state, kubelet = context.params["state_dir"], context.params["kubelet_dir"]
    run = context.params["run_dir"]
    assert (str(state), str(kubelet)) == (defaults["state_dir"], defaults["kubelet_dir"])
    assert run == default_run_dir()
    checkpoint = KubeletCheckpoint(kubelet, "x", answer_codec.mounts_of)
    wanted = {
        str(state),
        str(run),
        str(checkpoint.path.parent),
        f"{kubelet}/pod-resources",
        str(checkpoint._pods),
    }
    assert {path: mounts[path] for path in wanted} == {path: path for path in wanted}
    assert mounts_of("-mps")[str(run)] == str(run)
    daemon = daemon_environment(run, "GPU-1")["CUDA_MPS_PIPE_DIRECTORY"]
    assert Path(daemon).is_relative_to(run)


def test_unmounts_of_the_kubelet_reach_the_agent() -> None:
    """Or volumes of pods that are gone would stay busy."""
    propagation = {
        m["mountPath"]: m.get("mountPropagation") for m in container_of("-agent")["volumeMounts"]
    }

    assert propagation["/var/lib/kubelet/pods"] == "HostToContainer"
    assert propagation["/run/vgpu"] == "HostToContainer"


def test_probes_ask_for_pages_that_there_are() -> None:
    container = container_of("-agent")
    port, pages = container["ports"]
    context = agent_command.main.make_context("agent", list(container["args"]))
    source = (ROOT / "deviceplugin/agent.py").read_text()

    assert context.params["metrics_address"] == f":{port['containerPort']}"
    assert port["containerPort"] == 9446
    assert context.params["pages_address"] == f"127.0.0.1:{pages['containerPort']}"
    assert "hostNetwork" not in pod_of("-agent"), "else its loopback is the node's"
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]
        assert asked["port"] == port["name"]
        assert f'"{asked["path"]}":' in source
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_both_see_the_nodes_processes_and_only_the_agent_asks_the_api_server() -> None:
    agent, mps = pod_of("-agent"), pod_of("-mps")

    assert agent["hostPID"] is True
    assert (mps["hostPID"], mps["hostIPC"]) == (True, True)
    assert mps["automountServiceAccountToken"] is False
    assert agent["serviceAccountName"] == one("ServiceAccount", "-agent")["metadata"]["name"]
    # 16 daemons, one after the other, with 3 s to quit and 3 s to end.
    assert mps["terminationGracePeriodSeconds"] > 16 * (3 + 3)


def test_a_selector_matches_its_own_pods_and_no_others() -> None:
    sets = [o for o in install.manifests() if o["kind"] == "DaemonSet"]
    labels = [o["spec"]["template"]["metadata"]["labels"] for o in sets]

    for i, each in enumerate(sets):
        wanted = each["spec"]["selector"]["matchLabels"].items()
        assert [wanted <= label.items() for label in labels] == [i == j for j in range(len(sets))]
    assert {o["metadata"]["namespace"] for o in sets} == {one("Namespace", "")["metadata"]["name"]}


#: What the API server calls the right to a method.
VERBS = {"GET": "get", "POST": "create", "PATCH": "patch"}


def test_the_rights_are_those_that_the_code_needs_and_no_more(
    tmp_path: Path, server: ClusterServer
) -> None:
    owner = Owner("team-a", "p", "c")
    server.label_pod("p", "team-a")
    sender = EventSender(server.api(), "node")
    record = Record(Notice(EventReason.RAISE_REFUSED, "text", owner), "vgpu.1", 0.0, 0.0)
    for record.count in (1, 2):  # made, then counted up
        sender._tell(record)
    PodLabels(server.api(), tmp_path)._ask({"a": owner}, {"a": owner})
    for _ in range(2):  # made, then patched
        NodeLease(server.api(), "node").write({})
    pods = node_pods.NodePods(server.api(), "node", "nvidia.com")
    pods.start()
    wait_until(lambda: server.asked(POD, watch=True))
    pods.stop()
    needed = set()
    for method, target in server.called:
        path, _, query = target.partition("?")
        place = place_of(path)
        assert place is not None, target
        verb = VERBS[method]
        if verb == "get" and not place.name:
            verb = "watch" if "watch=" in query else "list"
        needed.add((place.kind.group, place.kind.plural, verb))

    everywhere = one("ClusterRole", "-agent")["rules"]
    # Leases of the agents' namespace, and of no other.
    rules = [*everywhere, *one("Role", "-agent")["rules"]]
    assert {resource for rule in everywhere for resource in rule["resources"]} == {
        "pods",
        "events",
        "nodes",
    }
    granted = {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == needed
    assert not any("resourceNames" in rule for rule in rules)
    binding = one("ClusterRoleBinding", "-agent")
    assert binding["roleRef"]["name"] == one("ClusterRole", "-agent")["metadata"]["name"]
    assert binding["subjects"] == [
        {
            "kind": "ServiceAccount",
            "name": one("ServiceAccount", "-agent")["metadata"]["name"],
            "namespace": one("ServiceAccount", "-agent")["metadata"]["namespace"],
        }
    ]


def test_nobody_else_asks_the_api_server() -> None:
    """The test above knows the callers; one more must be added there and to the rights.

    Labels of the node are written through the API server only where the config says so; the plain
    manifests have no rights for it.
    """
    importers, callers = set(), set()
    for file in (ROOT / "deviceplugin").rglob("*.py"):
        tree = list(ast.walk(ast.parse(file.read_text())))
        modules = {n.module or "" for n in tree if isinstance(n, ast.ImportFrom)}
        modules |= {a.name for n in tree if isinstance(n, ast.Import) for a in n.names}
        if any(each.split(".")[0] in ("lightkube", "kubernetes") for each in modules):
            importers.add(file.name)
        asked = {"pod", "create_event", "update_event", "node_metadata", "node_feature"}
        on_api = [
            n
            for n in tree
            if isinstance(n, ast.Attribute)
            and n.attr in asked
            and isinstance(n.value, ast.Attribute | ast.Name)
            and (n.value.attr if isinstance(n.value, ast.Attribute) else n.value.id).endswith("api")
        ]
        called = [n.func for n in tree if isinstance(n, ast.Call)]
        follows = any(isinstance(each, ast.Name) and each.id == "Follower" for each in called)
        # Programs of their own, with rights of their own: test_scheduler_chart, test_chart_guards.
        if not {"scheduler", "cleaning"} & set(file.parts) and (on_api or follows):
            callers.add(file.name)

    clients = {"api_client.py", "http_client.py", "raw_calls.py"}
    of_cleaning = {"cluster_calls.py"}
    of_agent = {"event_sender.py", "node_objects.py", "lease_objects.py"}
    assert importers == clients | of_agent | of_cleaning
    assert callers == {"event_sender.py", "pod_labels.py", "node_objects.py", "node_pods.py"}


def test_the_policy_speaks_of_what_the_code_does() -> None:
    policy = yaml.safe_dump(one("ValidatingAdmissionPolicy", "-slices"), width=10_000)

    for family in Family:
        for half in Half:
            assert f"nvidia.com/{family.name.lower()}-{half.name.lower()}" in policy
    assert f"{PRELOAD_FILE}/" in policy
    assert f"{CONTAINER_DIRECTORY}/" in policy
    assert Path(CONTAINER_PIPE_DIRECTORY).is_relative_to(CONTAINER_DIRECTORY)
    assert LIST_DIRECTORY.removeprefix("/var") in policy
    assert VISIBLE_DEVICES in policy
    for directory in ("/run/vgpu/", "/var/lib/vgpu/", "/var/lib/kubelet/"):
        assert f"''{directory}''" in policy or f"'{directory}'" in policy


def test_the_examples_ask_for_resources_of_the_install() -> None:
    names = set()
    for file in (ROOT / "deploy/examples").glob("*/pod.yaml"):
        for pod in yaml.safe_load_all(file.read_text()):
            for container in pod["spec"]["containers"]:
                names |= set(container.get("resources", {}).get("limits", {}))
    known = {f"nvidia.com/{f.name.lower()}-{h.name.lower()}" for f in Family for h in Half}

    assert names
    assert {n for n in names if n.startswith("nvidia.com/")} <= known
