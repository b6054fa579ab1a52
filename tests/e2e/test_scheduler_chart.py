"""The scheduler extender in the chart: its objects, rights and certificate, and what they have in
common with the examples of schedulers that ask it.
"""

import base64
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml

from deviceplugin.scheduler.__main__ import main as command
from deviceplugin.scheduler.binding import waking
from support import ROOT
from support.cluster import install

pytestmark = install.MARKS
EXAMPLES = ROOT / "deploy/examples/scheduler"
NAME, ELECTION = "vgpu-scheduler", "vgpu-system-election"
Objects = dict[tuple[str, str], dict[str, Any]]


def objects(*settings: str) -> Objects:
    """Returns what the chart makes with the extender, by kind and name."""
    given = ("scheduler.enabled=true", *settings)
    return install.objects(*(a for s in given for a in ("--set", s)))


def pod(found: Objects) -> dict[str, Any]:
    return found["Deployment", NAME]["spec"]["template"]["spec"]  # type: ignore[no-any-return]


def arguments(found: Objects) -> list[str]:
    (container,) = pod(found)["containers"]
    return list(container["args"])


def rights(found: Objects) -> set[tuple[str, str, str, str]]:
    """Returns each right as (where, resource, verb, name of the one object or nothing)."""
    return {
        (kind, resource, verb, ",".join(rule.get("resourceNames", ())))
        for kind in ("ClusterRole", "Role")
        for rule in found[kind, NAME]["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_there_is_none_unless_it_is_asked_for() -> None:
    plain = {(o["kind"], o["metadata"]["name"]) for o in install.manifests()}
    made = set(objects()) - plain

    assert not [name for _, name in plain if "scheduler" in name]
    assert made == {
        (kind, NAME)
        for kind in ("Deployment", "Service", "PodDisruptionBudget", "ServiceAccount",
                     "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
    } | {
        ("Secret", f"{NAME}-tls"), ("Secret", f"{NAME}-client-tls"), ("Namespace", ELECTION),
        ("Role", f"{NAME}-election"), ("RoleBinding", f"{NAME}-election"),
    }  # fmt: skip
    assert plain <= set(objects())


def test_the_rights_are_to_look_to_wake_the_scheduler_and_to_bind() -> None:
    reading = {
        ("ClusterRole", "pods", "list", ""),
        ("ClusterRole", "pods", "watch", ""),
        ("Role", "leases", "list", ""),
        ("Role", "leases", "watch", ""),
        ("Role", "csistoragecapacities", "create", ""),
        ("Role", "csistoragecapacities", "delete", waking.NAME),
    }
    binding = {
        ("ClusterRole", "pods", "get", ""),
        ("ClusterRole", "pods/binding", "create", ""),
        # Of earlier releases, whose replicas may still elect by it.
        ("Role", "leases", "get", NAME),
        ("Role", "leases", "update", NAME),
        ("Role", "leases", "patch", NAME),
    }

    found = objects()
    assert rights(found) == reading | binding
    assert rights(objects("scheduler.bind=false")) == reading
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        (subject,) = found[kind, NAME]["subjects"]
        assert subject == {"kind": "ServiceAccount", "name": NAME, "namespace": "vgpu-system"}
        assert found[kind, NAME]["roleRef"]["name"] == NAME
    assert pod(found)["serviceAccountName"] == NAME
    # The agents' account gets nothing by it.
    assert found["ClusterRole", "vgpu-agent"] == next(
        o
        for o in install.manifests()
        if (o["kind"], o["metadata"]["name"]) == ("ClusterRole", "vgpu-agent")
    )


def test_it_runs_without_rights_on_its_node() -> None:
    spec = pod(objects())
    (container,) = spec["containers"]

    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not [v for v in spec["volumes"] if "hostPath" in v]
    assert all(m["readOnly"] for m in container["volumeMounts"])
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert set(container["resources"]["limits"]) == {"memory"}


def test_it_is_selected_by_labels_that_no_other_pod_has() -> None:
    found = objects()
    own = found["Deployment", NAME]["spec"]["template"]["metadata"]["labels"].items()
    for selector in (
        found["PodDisruptionBudget", NAME]["spec"]["selector"]["matchLabels"],
        found["Service", NAME]["spec"]["selector"],
        found["Deployment", NAME]["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= own
        for part in ("vgpu-agent", "vgpu-mps"):
            other = found["DaemonSet", part]["spec"]["template"]["metadata"]["labels"].items()
            assert not selector.items() <= other


def test_values_hold_in_all_that_speaks_of_them() -> None:
    """Each alone is in test_chart_values.py."""
    found = objects(
        "scheduler.port=9443,scheduler.probePort=9444,scheduler.podSelector=team in (a\\,b)",
        "scheduler.extraArgs={--body-limit=64},namespace.name=gpus,image.tag=v9",
    )
    (container,) = pod(found)["containers"]
    (agent,) = found["DaemonSet", "vgpu-agent"]["spec"]["template"]["spec"]["containers"]

    assert {
        "--address=:9443", "--probe-address=:9444", "--namespace=gpus",
        "--pod-selector=team in (a,b)",
    } <= set(arguments(found))  # fmt: skip
    assert not [a for a in arguments(objects()) if a.startswith(("--gpu-policy", "--pod-sel"))]
    assert arguments(found)[-1] == "--body-limit=64"
    assert "clusterIP" not in objects()["Service", NAME]["spec"]
    assert container["image"] == agent["image"]
    port, pages = container["ports"]
    (service,) = found["Service", NAME]["spec"]["ports"]
    assert service == {"port": 443, "targetPort": port["name"]}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]
        assert (asked["port"], "scheme" in asked) == (pages["name"], False)
    assert {found[kind, NAME]["metadata"]["namespace"] for kind in ("Deployment", "Service")} == {
        "gpus"
    }


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ((), {"bind": True, "lease": NAME, "gpu_policy": None}),
        (("scheduler.bind=false",), {"bind": False}),
        (
            ("scheduler.nodePolicy=spread,scheduler.gpuPolicy=spread",),
            {"node_policy": "spread", "gpu_policy": "spread"},
        ),
        (("scheduler.podSelector=a!=b",), {"pod_selector": "a!=b"}),
        (
            ("scheduler.extraArgs={--body-limit=64,--no-leader-elect},scheduler.replicas=1",),
            {"body_limit": 64, "leader_elect": False},
        ),
        (("namespace.name=gpus",), {"namespace": "gpus"}),
    ],
)
def test_what_is_started_takes_these_options(
    settings: tuple[str, ...], options: dict[str, object]
) -> None:
    found = objects(*settings)
    (container,) = pod(found)["containers"]
    context = command.make_context("scheduler", arguments(found))  # an unknown one raises

    assert container["command"] == ["python", "-m", "deviceplugin.scheduler"]
    assert context.params.items() >= options.items()
    mounts = {m["mountPath"]: m["name"] for m in container["volumeMounts"]}
    assert mounts[str(context.params["tls_dir"])] == "tls"
    assert mounts[str(context.params["client_ca"].parent)] == "client"
    assert mounts[str(context.params["shown_tls_dir"])] == "client"
    assert mounts[str(context.params["config"].parent)] == "config"
    assert f":{container['ports'][0]['containerPort']}" == context.params["address"]
    # By which the replicas know each other, where --tls-name does not say it.
    name = f"{context.params['lease']}.{context.params['namespace']}.svc"
    assert (
        objects(*settings, "scheduler.certManager=true")["Certificate", NAME]["spec"]["dnsNames"][0]
        == name
    )


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ((), "config.yaml"),
        (("configs.default=version: v1,configs.a=version: v1",), "default"),
        (("configs.a=version: v1",), "a"),
        (("configs.a=version: v1,configs.b=version: v1,configSelection.default=b",), "b"),
        (("configs.a=version: v1,configs.b=version: v1,scheduler.config=a",), "a"),
        (("existingConfigMap=mine",), "config.yaml"),
        (("existingConfigMap=mine,configSelection.enabled=true,scheduler.config=x",), "x"),
    ],
)
def test_it_reads_one_config(settings: tuple[str, ...], key: str) -> None:
    found = objects(*settings)
    volumes = {v["name"]: v for v in pod(found)["volumes"]}
    agents = found["DaemonSet", "vgpu-agent"]["spec"]["template"]["spec"]["volumes"]

    assert f"--config=/etc/vgpu/{key}" in arguments(found)
    assert volumes["config"] in agents
    if ("ConfigMap", "vgpu-config") in found:
        assert key in found["ConfigMap", "vgpu-config"]["data"]


def test_the_certificate_is_good_for_the_name_that_schedulers_check(tmp_path: Path) -> None:
    data = objects()["Secret", f"{NAME}-tls"]["data"]
    files = {}
    for key, value in data.items():
        files[key] = tmp_path / key
        files[key].write_bytes(base64.b64decode(value))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files["tls.crt"], files["tls.key"])
    client = ssl.create_default_context(cafile=str(files["ca.crt"]))

    def handshake(name: str) -> None:
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        ours = server.wrap_bio(to_server, to_client, server_side=True)
        theirs = client.wrap_bio(to_client, to_server, server_hostname=name)
        for _ in range(4):
            for each in (theirs, ours):
                try:
                    each.do_handshake()
                except ssl.SSLWantReadError:
                    continue

    handshake(example_extender("kube-scheduler/scheduler-config.yaml")["tlsConfig"]["serverName"])
    handshake("vgpu-scheduler.vgpu-system.svc")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake("vgpu-scheduler.default.svc")
    assert set(data) == {"ca.crt", "tls.crt", "tls.key"}
    volumes = {v["name"]: v for v in pod(objects())["volumes"]}
    assert volumes["tls"]["secret"]["secretName"] == f"{NAME}-tls"


def test_a_certificate_may_be_given_or_be_cert_managers() -> None:
    given = objects("scheduler.tlsSecret=mine")
    managed = objects("scheduler.certManager=true")

    assert not [name for kind, name in given if kind in ("Certificate", "Issuer")]
    assert [name for kind, name in given if kind == "Secret"] == [f"{NAME}-client-tls"]
    volumes = {v["name"]: v for v in pod(given)["volumes"]}
    assert volumes["tls"]["secret"]["secretName"] == "mine"
    certificate = managed["Certificate", NAME]["spec"]
    assert certificate["secretName"] == f"{NAME}-tls"
    assert certificate["dnsNames"][0] == "vgpu-scheduler.vgpu-system.svc"
    assert certificate["issuerRef"]["name"] == managed["Issuer", NAME]["metadata"]["name"]
    assert [name for kind, name in managed if kind == "Secret"] == [f"{NAME}-client-tls"]


def test_what_schedulers_show_may_be_given_or_be_left_out() -> None:
    given = objects("scheduler.clientCertificate.secret=mine")
    open_to_all = objects("scheduler.clientCertificate.required=false")

    assert {v["name"]: v for v in pod(given)["volumes"]}["client"]["secret"]["secretName"] == "mine"
    assert ("Secret", f"{NAME}-client-tls") not in given
    # It is there before it is asked for: whoever upgrades has to hand it out first.
    assert ("Secret", f"{NAME}-client-tls") in open_to_all
    assert "client" not in {v["name"] for v in pod(open_to_all)["volumes"]}
    assert not [a for a in arguments(open_to_all) if a.startswith(("--client", "--shown"))]


def test_the_monitor_scrapes_it_where_nobody_needs_a_certificate() -> None:
    found = objects("podMonitor.enabled=true,podMonitor.labels.release=x")
    (endpoint,) = found["PodMonitor", NAME]["spec"]["podMetricsEndpoints"]
    (container,) = pod(found)["containers"]
    labels = found["Deployment", NAME]["spec"]["template"]["metadata"]["labels"]

    assert found["PodMonitor", NAME]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert endpoint["port"] in {p["name"] for p in container["ports"]}
    assert endpoint == {"port": "pages", "path": "/metrics"}
    assert found["PodMonitor", NAME]["metadata"]["labels"]["release"] == "x"
    assert ("PodMonitor", "vgpu-agent") in found


def example_extender(name: str) -> dict[str, Any]:
    """Returns the one extender of a kube-scheduler's configuration in the examples."""
    for document in yaml.safe_load_all((EXAMPLES / name).read_text()):
        config = document
        if document["kind"] == "ConfigMap":
            config = yaml.safe_load(document["data"]["scheduler-config.yaml"])
        if config["kind"] == "KubeSchedulerConfiguration":
            (extender,) = config["extenders"]
            return dict(extender)
    raise AssertionError(f"{name} has no extender")


def test_the_examples_ask_the_charts_service() -> None:
    host = f"{NAME}.vgpu-system.svc"
    first = example_extender("kube-scheduler/scheduler-config.yaml")
    second = example_extender("second-scheduler/second-scheduler.yaml")
    readme = (EXAMPLES / "kube-scheduler/README.md").read_text()
    volcano = (EXAMPLES / "volcano/volcano-scheduler-configmap.yaml").read_text()

    assert first["tlsConfig"]["serverName"] == host
    for extender in (first, second):
        assert {"caFile", "certFile", "keyFile"} <= extender["tlsConfig"].keys()
    assert (
        "scheduler.clientCertificate.required=false" in (EXAMPLES / "volcano/README.md").read_text()
    )
    address = first["urlPrefix"].removeprefix("https://")
    assert f"scheduler.clusterIP={address}" in readme
    assert second["urlPrefix"] == f"https://{host}"
    assert f"https://{host}/" in volcano
    secret = f"{NAME}-tls"
    assert ("Secret", secret) in objects()
    for file in ("kube-scheduler/README.md", "volcano/README.md"):
        assert f"get secret {secret}" in (EXAMPLES / file).read_text()
    assert f"get secret {NAME}-client-tls" in readme
    deployment = next(
        d
        for d in yaml.safe_load_all(
            (EXAMPLES / "second-scheduler/second-scheduler.yaml").read_text()
        )
        if d["kind"] == "Deployment"
    )
    volumes = {v["name"]: v for v in deployment["spec"]["template"]["spec"]["volumes"]}
    assert volumes["ca"]["secret"]["secretName"] == secret
    assert [item["key"] for item in volumes["ca"]["secret"]["items"]] == ["ca.crt"]


@pytest.mark.parametrize("settings", [(), ("scheduler.electionNamespace=mine",)])
def test_no_node_agent_can_write_the_election(settings: tuple[str, ...]) -> None:
    found = objects(*settings)
    where = settings[0].partition("=")[2] if settings else ELECTION
    assert f"--election-namespace={where}" in arguments(found)
    assert (("Namespace", where) in found) == (not settings)

    role = found["Role", f"{NAME}-election"]
    assert role["metadata"]["namespace"] == where
    assert role["rules"] == [
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": [NAME],
            "verbs": ["get", "update"],
        },
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
    ]
    bindings = [o for (kind, _), o in found.items() if kind.endswith("RoleBinding")]
    there = [o for o in bindings if o["metadata"].get("namespace") in (None, where)]
    by_account = {
        (subject["name"], o["roleRef"]["kind"], o["roleRef"]["name"])
        for o in there
        for subject in o["subjects"]
    }
    writers = {
        account
        for account, kind, name in by_account
        for rule in found[kind, name]["rules"]
        if {"leases", "*"} & set(rule["resources"])
        and set(rule["verbs"]) - {"get", "list", "watch"}
    }
    assert writers == {NAME}
