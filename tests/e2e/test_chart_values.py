"""Every value of the chart: what it changes, in which field of which object.

A row for each leaf of values.yaml; one without a row fails. Objects of all kinds that need a value
are held against the schemas of three minors of Kubernetes.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.cluster import install

pytestmark = install.MARKS
#: Whatever else a value needs to have an effect, by its beginning.
NEEDED = {
    "scheduler.": "scheduler.enabled=true",
    "mutation.webhook.": "mutation.enabled=true,mutation.mode=webhook",
    "mutation.": "mutation.enabled=true",
    "networkPolicy.": "networkPolicy.enabled=true",
    "networkPolicy.from.scheduler": "networkPolicy.enabled=true,scheduler.enabled=true",
    "networkPolicy.from.webhook": "networkPolicy.enabled=true,mutation.enabled=true",
    "priorityClass.": "priorityClass.create=true",
    "cleanHosts.": "cleanHosts.enabled=true",
    "podMonitor.": "podMonitor.enabled=true",
    "prometheusRule.": "prometheusRule.enabled=true",
    "grafanaDashboards.": "grafanaDashboards.enabled=true",
    "policy.strictVisibleDevices.": "policy.strictVisibleDevices.enabled=true",
    "configSelection.": "configs.default=version: v1,configs.a=version: v1",
}
AGENT, MPS = ("DaemonSet", "vgpu-agent"), ("DaemonSet", "vgpu-mps")
EXTENDER, WEBHOOK = ("Deployment", "vgpu-scheduler"), ("Deployment", "vgpu-webhook")
CONFIG, JOB = ("ConfigMap", "vgpu-config"), ("Job", "vgpu-clean-hosts")
SLICES = ("ValidatingAdmissionPolicyBinding", "vgpu-slices")
HOOK = ("MutatingWebhookConfiguration", "vgpu-pods")
POD = "spec.template.spec"
ARGS, ENV = f"{POD}.containers.0.args", f"{POD}.containers.0.env"
RULES, RULES_JSON = ("ConfigMap", "vgpu-webhook"), ["data", "rules.json"]
MEMORY = f"{POD}.containers.0.resources.limits.memory"
TLS = f"{POD}.volumes.1.secret.secretName"
PEERS = "[0].namespaceSelector.matchLabels.a=b"
CIDR, PORT = {"ipBlock": {"cidr": "10.9.0.1/32"}}, {"protocol": "TCP", "port": 8443}
PEER = [{"namespaceSelector": {"matchLabels": {"a": "b"}}}]
_LABELS = ["metadata", "labels", "team"]
#: The value as --set has it -> the object, the path of a field, and what is there: all of it, one
#: of a list, or a part of a text. None: there is no such object, or where it has a path no field.
ROWS: dict[str, tuple[tuple[str, str], Any, Any]] = {
    "image.repository=r.io/x": (AGENT, f"{POD}.containers.0.image", "r.io/x:0.1.0"),
    "image.tag=v9": (MPS, f"{POD}.initContainers.0.image", "vgpu:v9"),
    "image.pullPolicy=Always": (AGENT, f"{POD}.containers.0.imagePullPolicy", "Always"),
    "image.pullSecrets[0].name=key": (MPS, f"{POD}.imagePullSecrets", [{"name": "key"}]),
    "namespace.name=gpus": (AGENT, "metadata.namespace", "gpus"),
    "namespace.create=false": (("Namespace", "vgpu-system"), "", None),
    "resourceDomain=x.org": (CONFIG, ["data", "config.yaml"], "resourceDomain: x.org"),
    "config=version: v1 # own": (CONFIG, ["data", "config.yaml"], "# own"),
    "configs.a=version: v1": (CONFIG, "data.a", "resourceDomain: nvidia.com"),
    "configSelection.nodeLabel=x/y": (AGENT, ENV, {"name": "NODE_LABEL", "value": "x/y"}),
    "configSelection.default=a": (AGENT, ENV, {"name": "DEFAULT_CONFIG", "value": "a"}),
    "configSelection.fallbackStrategies={single}":
        (AGENT, ENV, {"name": "FALLBACK_STRATEGIES", "value": "single"}),
    "configSelection.enabled=true": (AGENT, ARGS, "--config=/etc/vgpu"),
    "existingConfigMap=mine": (MPS, f"{POD}.volumes.0.configMap.name", "mine"),
    "dirs.kubelet=/data/kubelet": (AGENT, ARGS, "--kubelet-dir=/data/kubelet"),
    "dirs.state=/data/state": (AGENT, ARGS, "--state-dir=/data/state"),
    "dirs.run=/run/slices": (MPS, ARGS, "--run-dir=/run/slices"),
    "dirs.driver=/opt/driver": (AGENT, ENV, {"name": "NVIDIA_DRIVER_ROOT", "value": "/opt/driver"}),
    "dirs.mpsRoot=/mps/root": (MPS, ARGS, "--mps-root=/mps/root"),
    "runDirSize=1Gi": (AGENT, f"{POD}.initContainers.0.env.2.value", "1G"),
    "runtimeClassName=nvidia": (AGENT, f"{POD}.runtimeClassName", "nvidia"),
    "nodeSelector.pool=gpu": (MPS, f"{POD}.nodeSelector.pool", "gpu"),
    "tolerations[0].operator=Exists": (AGENT, f"{POD}.tolerations", [{"operator": "Exists"}]),
    "priorityClassName=high": (MPS, f"{POD}.priorityClassName", "high"),
    "priorityClass.create=true": (AGENT, f"{POD}.priorityClassName", "vgpu-critical"),
    "priorityClass.name=own": (("PriorityClass", "own"), "value", 1000000000),
    "priorityClass.value=7": (("PriorityClass", "vgpu-critical"), "value", 7),
    "networkPolicy.enabled=true": (("NetworkPolicy", "vgpu-mps"), "spec.policyTypes",
                                   ["Ingress", "Egress"]),
    f"networkPolicy.from.agent{PEERS}": (("NetworkPolicy", "vgpu-agent"), "spec.ingress.0.from",
                                         PEER),
    f"networkPolicy.from.scheduler{PEERS}":
        (("NetworkPolicy", "vgpu-scheduler"), "spec.ingress.0.from", PEER),
    f"networkPolicy.from.webhook{PEERS}":
        (("NetworkPolicy", "vgpu-webhook"), "spec.ingress.0.from", PEER),
    "networkPolicy.apiServer.cidrs={10.9.0.1/32}":
        (("NetworkPolicy", "vgpu-agent"), "spec.egress.0.to", [CIDR]),
    "networkPolicy.apiServer.ports={8443}":
        (("NetworkPolicy", "vgpu-agent"), "spec.egress.0.ports", [PORT]),
    "agent.metricsPort=9500": (AGENT, ARGS, "--pages-address=127.0.0.1:9501"),
    "agent.publish=false": (AGENT, ARGS, "--no-publish"),
    "agent.resources.limits.memory=1Gi": (AGENT, MEMORY, "1Gi"),
    "labels.featuresDir=/nfd/x": (AGENT, f"{POD}.volumes.7.hostPath.path", "/nfd/x"),
    "labels.nodeFeatureApi=true": (("Role", "vgpu-agent"), "rules.1.resources", ["nodefeatures"]),
    "labels.patchNode=true": (("ClusterRole", "vgpu-agent"), "rules.2.verbs", ["get", "patch"]),
    "cdi.directory=/etc/cdi": (AGENT, f"{POD}.volumes.8.hostPath.path", "/etc/cdi"),
    "cleanHosts.enabled=true": (JOB, f"{POD}.serviceAccountName", "vgpu-clean-hosts"),
    "cleanHosts.deadlineSeconds=90": (JOB, ARGS, "--deadline=90"),
    "cleanHosts.resources.limits.memory=1Gi": (JOB, MEMORY, "1Gi"),
    "podMonitor.enabled=true": (("PodMonitor", "vgpu-agent"), "kind", "PodMonitor"),
    "podMonitor.honorLabels=false":
        (("PodMonitor", "vgpu-agent"), "spec.podMetricsEndpoints.0.honorLabels", False),
    "podMonitor.interval=9s": (("PodMonitor", "vgpu-agent"), "spec.podMetricsEndpoints.0.interval",
                               "9s"),
    "podMonitor.labels.team=x": (("PodMonitor", "vgpu-agent"), _LABELS, "x"),
    "prometheusRule.enabled=true": (("PrometheusRule", "vgpu"), "kind", "PrometheusRule"),
    "prometheusRule.labels.team=x": (("PrometheusRule", "vgpu"), _LABELS, "x"),
    "grafanaDashboards.enabled=true": (("ConfigMap", "vgpu-dashboard-gpu"), "kind", "ConfigMap"),
    "grafanaDashboards.labels.team=x": (("ConfigMap", "vgpu-dashboard-gpu"), _LABELS, "x"),
    "grafanaDashboards.annotations.folder=x":
        (("ConfigMap", "vgpu-dashboard-gpu"), "metadata.annotations.folder", "x"),
    "mps.enabled=false": (MPS, "", None),
    "mps.resources.limits.memory=1Gi": (MPS, MEMORY, "1Gi"),
    "scheduler.enabled=true": (EXTENDER, "spec.replicas", 2),
    "scheduler.replicas=3": (EXTENDER, "spec.replicas", 3),
    "scheduler.nodePolicy=spread": (EXTENDER, ARGS, "--node-policy=spread"),
    "scheduler.gpuPolicy=spread": (EXTENDER, ARGS, "--gpu-policy=spread"),
    "scheduler.bind=false": (EXTENDER, ARGS, "--no-bind"),
    "scheduler.electionNamespace=mine": (EXTENDER, ARGS, "--election-namespace=mine"),
    "scheduler.podSelector=a=b": (EXTENDER, ARGS, "--pod-selector=a=b"),
    "scheduler.config=a,configs.a=version: v1,configs.b=version: v1":
        (EXTENDER, ARGS, "--config=/etc/vgpu/a"),
    "scheduler.extraArgs={--body-limit=9}": (EXTENDER, ARGS, "--body-limit=9"),
    "scheduler.port=9443": (EXTENDER, f"{POD}.containers.0.ports.0.containerPort", 9443),
    "scheduler.probePort=9444": (EXTENDER, ARGS, "--probe-address=:9444"),
    "scheduler.clientCertificate.required=false":
        (EXTENDER, f"{POD}.volumes.2", None),
    "scheduler.clientCertificate.secret=own":
        (EXTENDER, f"{POD}.volumes.2.secret.secretName", "own"),
    "scheduler.clusterIP=10.96.0.9": (("Service", "vgpu-scheduler"), "spec.clusterIP", "10.96.0.9"),
    "scheduler.tlsSecret=own": (EXTENDER, TLS, "own"),
    "scheduler.certManager=true": (("Certificate", "vgpu-scheduler"), "spec.secretName",
                                   "vgpu-scheduler-tls"),
    "scheduler.priorityClassName=high": (EXTENDER, f"{POD}.priorityClassName", "high"),
    "scheduler.nodeSelector.pool=x": (EXTENDER, f"{POD}.nodeSelector.pool", "x"),
    "scheduler.tolerations[0].operator=Exists":
        (EXTENDER, f"{POD}.tolerations", [{"operator": "Exists"}]),
    "scheduler.resources.limits.memory=2Gi": (EXTENDER, MEMORY, "2Gi"),
    "policy.enabled=false": (SLICES, "", None),
    "policy.validationActions={Warn}": (SLICES, "spec.validationActions", ["Warn"]),
    "policy.exemptNamespaces={lab}":
        (("ValidatingAdmissionPolicy", "vgpu-amounts"),
         "spec.matchConstraints.namespaceSelector.matchExpressions.0.values", ["lab"]),
    "policy.loneHalves.vgpu=forbid":
        (("ValidatingAdmissionPolicy", "vgpu-amounts"), "spec", "['vgpu'].filter(f"),
    "policy.loneHalves.mps=forbid":
        (("ValidatingAdmissionPolicy", "vgpu-amounts"), "spec", "['mps'].filter(f"),
    "policy.strictVisibleDevices.enabled=true":
        (("ValidatingAdmissionPolicy", "vgpu-visible-devices"), "spec.failurePolicy", "Fail"),
    "policy.strictVisibleDevices.exemptNamespaces={lab}":
        (("ValidatingAdmissionPolicy", "vgpu-visible-devices"), "spec", "lab"),
    "mutation.enabled=true": (WEBHOOK, "spec.replicas", 2),
    "mutation.mode=policy,mutation.apiVersion=v1beta1": (WEBHOOK, "", None),
    "mutation.apiVersion=v1beta1":
        (("MutatingAdmissionPolicy", "vgpu-pods"), "apiVersion",
         "admissionregistration.k8s.io/v1beta1"),
    "mutation.resources={own-*}": (RULES, RULES_JSON, '"nvidia.com/own-*"'),
    "mutation.tolerations[0].key=own": (RULES, RULES_JSON, '"key": "own"'),
    "mutation.runtimeClassName=own": (RULES, RULES_JSON, '"runtimeClassName": "own"'),
    "mutation.schedulerName=own": (RULES, RULES_JSON, '"schedulerName": "own"'),
    "mutation.labels.own=x": (RULES, RULES_JSON, '"own": "x"'),
    "mutation.markerResource=x.org/own": (RULES, RULES_JSON, '"markerResource": "x.org/own"'),
    "mutation.webhook.replicas=3": (WEBHOOK, "spec.replicas", 3),
    "mutation.webhook.port=9443": (WEBHOOK, f"{POD}.containers.0.ports.0.containerPort", 9443),
    "mutation.webhook.probePort=9444": (WEBHOOK, ARGS, "--probe-address=:9444"),
    "mutation.webhook.clientCA=-----BEGIN CERTIFICATE-----own":
        (RULES, ["data", "client-ca.crt"], "-----BEGIN CERTIFICATE-----own"),
    "mutation.webhook.priorityClassName=high": (WEBHOOK, f"{POD}.priorityClassName", "high"),
    "mutation.webhook.resources.limits.memory=1Gi": (WEBHOOK, MEMORY, "1Gi"),
    "mutation.webhook.tlsSecret=own,mutation.webhook.caBundle=-----BEGIN CERTIFICATE-----":
        (WEBHOOK, TLS, "own"),
    "mutation.webhook.caBundle=-----BEGIN CERTIFICATE-----own,mutation.webhook.tlsSecret=own":
        (HOOK, "webhooks.0.clientConfig.caBundle", "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tb3du"),
    "mutation.webhook.certManager=true":
        (HOOK, ["metadata", "annotations", "cert-manager.io/inject-ca-from"],
         "vgpu-system/vgpu-webhook"),
}  # fmt: skip


@cache
def objects(values: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Returns what the chart makes, by kind and name."""
    return install.objects("--set", values)


def needed(value: str) -> str:
    """Returns the values that one needs to have an effect, empty for none."""
    fitting = [beginning for beginning in NEEDED if value.startswith(beginning)]
    return NEEDED[max(fitting, key=len)] if fitting else "image.repository=vgpu"


def field(of: Any, path: str | list[str]) -> Any:
    """Returns a field of an object; None where there is none."""
    for key in path.split(".") if isinstance(path, str) else path:
        if isinstance(of, list):
            of = of[int(key)] if int(key) < len(of) else None
        else:
            of = (of or {}).get(key)
    return of


def says(found: Any, wanted: Any) -> bool:
    """Whether a field is what is wanted, or has it among others."""
    if found == wanted:
        return True
    if isinstance(found, list):
        return wanted in found
    if isinstance(found, dict):
        return isinstance(wanted, str) and wanted in yaml.safe_dump(found)
    return isinstance(found, str) and isinstance(wanted, str) and wanted in found


@pytest.mark.parametrize("value", ROWS)
def test_a_value_changes_what_it_says(value: str) -> None:
    which, path, wanted = ROWS[value]
    before, after = objects(needed(value)), objects(f"{needed(value)},{value}")

    if wanted is None:
        assert field(before[which], path) if path else which in before
        assert field(after[which], path) is None if path else which not in after
        return
    assert says(field(after[which], path), wanted), field(after[which], path)
    if which in before and not value.endswith((".enabled=true", "namespace.create=true")):
        is_only_needed = value == needed(value)
        assert is_only_needed or not says(field(before[which], path), wanted)


#: Mappings whose keys are people's own.
OWN_KEYS = ("resources", "nodeSelector", ".labels", "annotations", "configs")


def leaves(values: Any, path: str = "") -> Iterator[str]:
    """Yields the values that people set."""
    if not isinstance(values, dict) or path.endswith(OWN_KEYS):
        yield path
        return
    for key, below in values.items():
        yield from leaves(below, f"{path}.{key}".lstrip("."))


def test_every_value_has_a_row() -> None:
    values = yaml.safe_load((install.CHART / "values.yaml").read_text())
    rows = [row.partition("=")[0] for row in ROWS]

    assert [leaf for leaf in leaves(values) if not any(row.startswith(leaf) for row in rows)] == []


# ---- the form of what is only made where it is asked for -----------------------------------------


@pytest.mark.parametrize("version", [*install.KUBERNETES, install.MUTATING_V1])
def test_every_object_has_the_form_that_kubernetes_asks_for(version: str, tmp_path: Path) -> None:
    values = (
        "networkPolicy.enabled=true,priorityClass.create=true,cleanHosts.enabled=true,"
        "scheduler.enabled=true,mutation.enabled=true,mutation.mode=webhook,"
        "grafanaDashboards.enabled=true,policy.strictVisibleDevices.enabled=true,"
        "image.pullSecrets[0].name=key,"
        f"networkPolicy.from.agent{PEERS},networkPolicy.from.scheduler{PEERS},"
        "networkPolicy.apiServer.cidrs={10.9.0.1/32},"
        "scheduler.tolerations[0].operator=Exists,scheduler.podSelector=a=b"
    )
    text, pod = install.render("--set", values), field(objects(values)[JOB], ENV)[0]["value"]

    assert install.misformed(tmp_path, version, text, pod) == ""
    assert {"NetworkPolicy", "PriorityClass", "Job"} <= {kind for kind, _ in objects(values)}
    wrong = text.replace("policyTypes:", "policyType:")
    assert "policyType" in install.misformed(tmp_path, version, wrong)
