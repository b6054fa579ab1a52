"""What the chart makes around its pods: network policies, a priority class, the hook that cleans.

Against the pods that they are for, and the programs that they start.
"""

import json
from typing import Any

import pytest

from deviceplugin.cleaning import __main__ as cleaning
from deviceplugin.cleaning.seen_pods import HOST_PART
from support.cluster import install

pytestmark = install.MARKS
ALL = (
    "networkPolicy.enabled=true,scheduler.enabled=true,mutation.enabled=true,"
    "cleanHosts.enabled=true"
)
DEPLOYMENTS = "scheduler.enabled=true,mutation.enabled=true,mutation.mode=webhook"
REPLICAS = {"scheduler": "scheduler.replicas", "webhook": "mutation.webhook.replicas"}
HOOK = "vgpu-clean-hosts"
#: How long helm waits for a hook where nobody says otherwise.
HELM_S = 300
Objects = dict[tuple[str, str], dict[str, Any]]


def objects(values: str = ALL) -> Objects:
    """Returns what the chart makes, by kind and name."""
    return install.objects("--set", values)


def host_pod(found: Objects) -> dict[str, Any]:
    """Returns the pod that cleans a node, as the Job has it."""
    (container,) = found["Job", HOOK]["spec"]["template"]["spec"]["containers"]
    env = {each["name"]: each.get("value") for each in container["env"]}
    return dict(json.loads(env["NODE_POD"]))


def pods(found: Objects) -> dict[str, dict[str, Any]]:
    """Returns all that the chart runs, by part, each as a template of a pod."""
    kinds = ("DaemonSet", "Deployment", "Job")
    templates = [each["spec"]["template"] for (kind, _), each in found.items() if kind in kinds]
    if ("Job", HOOK) in found:
        templates.append(host_pod(found))
    return {each["metadata"]["labels"]["app.kubernetes.io/component"]: each for each in templates}


# ---- network policies ----------------------------------------------------------------------------


def test_there_is_no_network_policy_unless_it_is_asked_for() -> None:
    assert not [kind for kind, _ in objects("scheduler.enabled=true") if kind == "NetworkPolicy"]


def test_every_pod_is_of_one_network_policy_and_none_is_in_its_nodes_network() -> None:
    found = objects()
    policies = [each["spec"] for (kind, _), each in found.items() if kind == "NetworkPolicy"]
    running = pods(found)

    assert set(running) == {"agent", "mps", "scheduler", "webhook", "clean-hosts", HOST_PART}
    assert len(policies) == len(running)
    for part, template in running.items():
        labels = template["metadata"]["labels"].items()
        (policy,) = (
            each for each in policies if each["podSelector"]["matchLabels"].items() <= labels
        )
        assert policy["policyTypes"] == ["Ingress", "Egress"], part
        # A policy does not reach a pod that is in the network of its node.
        assert "hostNetwork" not in template["spec"], part


def test_what_may_come_in_is_what_the_containers_serve() -> None:
    values = (
        f"{ALL},agent.metricsPort=9501,scheduler.port=9506,mutation.webhook.port=9503,"
        "scheduler.probePort=9504,mutation.webhook.probePort=9505"
    )
    found = objects(values)
    for part, template in pods(found).items():
        policy = found["NetworkPolicy", f"vgpu-{part}"]["spec"]
        (container,) = template["spec"]["containers"]
        served = {each["containerPort"] for each in container.get("ports", ())}
        addresses = [word.partition("=127.0.0.1:")[2] for word in container.get("args", ())]
        inside = {int(port) for port in addresses if port}
        assert inside == ({9502} if part == "agent" else set())
        let_in = {each["port"] for rule in policy.get("ingress", ()) for each in rule["ports"]}
        assert let_in == served - inside, part
        assert all("from" not in rule for rule in policy.get("ingress", ())), part


def test_only_what_asks_the_api_server_gets_out() -> None:
    found = objects()
    for part, template in pods(found).items():
        policy = found["NetworkPolicy", f"vgpu-{part}"]["spec"]
        ports = [each["port"] for rule in policy.get("egress", ()) for each in rule["ports"]]
        asks = template["spec"].get("automountServiceAccountToken", True)
        assert ({443, 6443, 53} <= set(ports)) == asks, part
        assert bool(ports) == asks, part


def test_replicas_of_the_extender_reach_each_other_whoever_may_ask_it() -> None:
    found = objects(f"{ALL},networkPolicy.from.scheduler[0].ipBlock.cidr=10.0.0.0/8")
    policy = found["NetworkPolicy", "vgpu-scheduler"]["spec"]
    own = {"podSelector": policy["podSelector"]}

    assert [rule["from"] for rule in policy["ingress"]] == [
        [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
        [own],
    ]
    assert policy["egress"][-1] == {"ports": [{"protocol": "TCP", "port": 8443}], "to": [own]}


# ---- priority ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "classes", "made"),
    [
        ("", {"agent": "system-node-critical", "mps": "system-node-critical",
              "scheduler": "system-cluster-critical", "webhook": "system-cluster-critical"}, None),
        ("priorityClassName=high",
         {"agent": "high", "mps": "high", "scheduler": "system-cluster-critical",
          "webhook": "system-cluster-critical"}, None),
        ("priorityClass.create=true",
         dict.fromkeys(("agent", "mps", "scheduler", "webhook"), "vgpu-critical"),
         "vgpu-critical"),
        (("priorityClass.create=true,priorityClass.name=own,scheduler.priorityClassName=high,"
          "mutation.webhook.priorityClassName=middle"),
         {"agent": "own", "mps": "own", "scheduler": "high", "webhook": "middle"}, "own"),
    ],
)  # fmt: skip
def test_pods_have_the_priority_that_values_say(
    values: str, classes: dict[str, str], made: str | None
) -> None:
    found = objects(",".join(filter(None, (DEPLOYMENTS, values))))

    assert {
        part: template["spec"]["priorityClassName"] for part, template in pods(found).items()
    } == classes
    assert [name for kind, name in found if kind == "PriorityClass"] == ([made] if made else [])


@pytest.mark.parametrize("part", ["scheduler", "webhook"])
def test_not_all_replicas_go_at_once(part: str) -> None:
    found = objects(DEPLOYMENTS)
    name = f"vgpu-{part}"
    spec = found["PodDisruptionBudget", name]["spec"]
    template = found["Deployment", name]["spec"]["template"]

    assert spec["maxUnavailable"] == 1
    assert spec["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    (apart,) = template["spec"]["affinity"]["podAntiAffinity"].values()
    assert apart[0]["podAffinityTerm"] == {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": spec["selector"],
    }
    single = objects(f"{DEPLOYMENTS},{REPLICAS[part]}=1")
    assert ("PodDisruptionBudget", name) not in single


# ---- the hook that cleans ------------------------------------------------------------------------


def test_the_hook_is_there_only_where_it_is_asked_for() -> None:
    hooks = {
        key
        for key, each in objects().items()
        if "helm.sh/hook" in each["metadata"].get("annotations", {})
    }

    assert hooks == {
        (kind, HOOK)
        for kind in (
            "Job",
            "ServiceAccount",
            "ClusterRole",
            "ClusterRoleBinding",
            "Role",
            "RoleBinding",
        )
    }
    assert not [name for _, name in objects("scheduler.enabled=true") if "clean" in name]


def test_the_rights_of_the_hook_live_as_long_as_its_job() -> None:
    found = objects()
    for (kind, name), each in found.items():
        if name != HOOK or kind == "NetworkPolicy":
            continue
        notes = each["metadata"]["annotations"]
        assert notes["helm.sh/hook"] == "pre-delete"
        # What succeeded is removed when the whole hook has; a failed Job stays, to be looked at.
        assert notes["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"
        assert (int(notes["helm.sh/hook-weight"]) < 0) == (kind != "Job")
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        (subject,) = found[kind, HOOK]["subjects"]
        assert subject == {"kind": "ServiceAccount", "name": HOOK, "namespace": "vgpu-system"}
        assert found[kind, HOOK]["roleRef"]["name"] == HOOK


def test_the_rights_of_the_hook_are_what_it_asks_for() -> None:
    """What that is, tests/unit/deviceplugin/cleaning/test_cluster.py counts."""
    found = objects()
    rights = {
        (kind, resource, verb, tuple(rule.get("resourceNames", ())))
        for kind in ("ClusterRole", "Role")
        for rule in found[kind, HOOK]["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }

    assert rights == {
        ("ClusterRole", "nodes", "list", ()),
        ("ClusterRole", "pods", "list", ()),
        ("ClusterRole", "events", "create", ()),
        ("Role", "daemonsets", "get", ("vgpu-agent", "vgpu-mps")),
        ("Role", "daemonsets", "delete", ("vgpu-agent", "vgpu-mps")),
        ("Role", "pods", "create", ()),
        ("Role", "pods", "delete", ()),
        ("Role", "leases", "list", ()),
        ("Role", "leases", "delete", ()),
    }


def test_the_programs_take_these_options() -> None:
    found = objects(f"{ALL},dirs.mpsRoot=/run/mps,nodeSelector.pool=gpu")
    job = found["Job", HOOK]["spec"]["template"]["spec"]["containers"][0]
    host = host_pod(found)["spec"]["containers"][0]

    assert job["command"] == ["python", "-m", "deviceplugin.cleaning", "cluster"]
    context = cleaning.cluster.make_context("cluster", [*job["args"], "--node-pod={}"])
    assert context.params["release"] == "vgpu"
    assert context.params["node_selector"] == (
        "kubernetes.io/arch=amd64,nvidia.com/gpu.present=true,pool=gpu"
    )
    assert context.params["deadline_s"] < HELM_S
    assert found["Job", HOOK]["spec"]["activeDeadlineSeconds"] > context.params["deadline_s"]
    assert host["command"] == ["python", "-m", "deviceplugin.cleaning", "host"]
    options = [*host["args"], "--message-file=/dev/null"]
    params = cleaning.host.make_context("host", options).params
    assert [str(params[key]) for key in ("run_dir", "state_dir", "mps_root")] == [
        "/run/vgpu",
        "/var/lib/vgpu",
        "/run/mps",
    ]


def test_what_cleans_a_node_reaches_it_and_runs_on_any() -> None:
    pod = host_pod(objects(f"{ALL},image.tag=v9,image.pullSecrets[0].name=key"))
    spec = pod["spec"]
    (container,) = spec["containers"]

    assert (spec["hostPID"], spec["restartPolicy"]) == (True, "Never")
    assert container["securityContext"] == {"privileged": True}
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["automountServiceAccountToken"] is False
    assert container["image"] == "vgpu:v9"
    assert spec["imagePullSecrets"] == [{"name": "key"}]
    assert pod["metadata"]["namespace"] == "vgpu-system"
    # What it removes it must not hold.
    assert "volumes" not in spec
    job = objects()["Job", HOOK]["spec"]["template"]["spec"]
    assert job["securityContext"]["runAsNonRoot"] is True
    assert job["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
