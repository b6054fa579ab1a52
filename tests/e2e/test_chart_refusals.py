"""Values that each are possible and cannot be together: the chart refuses them, with what to set.

`values.schema.json` cannot say them; `templates/_validate.tpl` does, and every sentence of it has a
row here.
"""

import re
import shutil
from functools import cache
from pathlib import Path

import pytest
import yaml

from support.cluster import install

pytestmark = install.MARKS
SENTENCES = install.CHART / "templates/_validate.tpl"
WEBHOOK = "mutation.enabled=true,mutation.mode=webhook"
SCHEDULER = "scheduler.enabled=true"
TWO = "configs.a=version: v1,configs.b=version: v1"
PEM = "-----BEGIN CERTIFICATE-----"
#: Values -> what is said of them.
REFUSED = {
    # ---- which config
    "config=version: v1,configs.a=version: v1": "and config and configs are set: only the configs",
    "config=version: v1,existingConfigMap=m": "are set: only the ConfigMap would be read",
    "configs.a=version: v1,existingConfigMap=m": "configs and existingConfigMap are set",
    "configSelection.enabled=true": "there are no configs to select from",
    "configSelection.default=a": "a, but nodes select no config: set configs",
    f"{TWO},configSelection.default=c": "c, which is none of configs: a, b",
    # ---- what it says
    "config=a: b: c": "config is not YAML: ",
    "configs.x=a: b: c": "configs.x is not YAML: ",
    "config=- version: v1": "config is not YAML: ",
    "config=sharing: all": 'sharing in config is "all", where a mapping belongs',
    "config=flags: [migStrategy]": 'flags in config is ["migStrategy"], where a mapping',
    "configs.x=labels: file": 'labels in configs.x is "file", where a mapping belongs',
    "config=resourceDomain: x.y": "resourceDomain is nvidia.com, but x.y in config",
    "configs.x=resourceDomain: x.y": "but x.y in configs.x",
    "config=flags: {mpsRoot: /mps/x}": 'but dirs.mpsRoot is "": the pods must mount it',
    "config=sharing: {fractional: [{family: mps}]},mps.enabled=false":
        "set mps.enabled to true or take family mps out of the config",
    "config=sharing: {mps: {resources: [{name: gpu\\, replicas: 2}]}},mps.enabled=false":
        "or take sharing.mps out of the config",
    "config=flags: {useNodeFeatureAPI: true}": "set labels.nodeFeatureApi to true",
    "config=labels: {writeTo: node-feature}": "set labels.nodeFeatureApi to true",
    "config=labels: {writeTo: node}": "set labels.patchNode to true",
    "config=labels: {writeTo: file},labels.featuresDir=": "so set labels.featuresDir",
    "config=flags: {gfd: {outputFile: /nfd/own/gfd}}": "so set labels.featuresDir to /nfd/own",
    "config=flags: {plugin: {cdiSpecDir: /etc/cdi/}}": "so set cdi.directory to /etc/cdi",
    "config=flags: {plugin: {deviceListStrategy: cdi-cri}},cdi.directory=":
        "deviceListStrategy is cdi-cri in config, but cdi.directory is empty",
    "config=flags: {plugin: {deviceListStrategy: [envvar\\, cdi-annotations]}},cdi.directory=":
        "deviceListStrategy is cdi-annotations in config",
    # ---- directories
    "dirs.run=/var/run/vgpu,dirs.state=/run/vgpu/state": "one is emptied at a reboot",
    "dirs.run=/var/lib/kubelet/vgpu": "dirs.kubelet (/var/lib/kubelet) must not lie in each other",
    "dirs.run=/var/lib": "dirs.run (/var/lib) and dirs.kubelet (/var/lib/kubelet) must not",
    "dirs.state=/var/lib/kubelet/pods": "leave dirs.state as it is",
    "dirs.mpsRoot=/run/vgpu/mps": "leave dirs.mpsRoot empty",
    "dirs.driver=/var/lib/vgpu/driver": "dirs.driver (/var/lib/vgpu/driver) and dirs.state",
    "dirs.driver=/home/kubernetes/bin/nvidia,runtimeClassName=nvidia": "so leave one of them empty",
    "dirs.run=/run/cdi": "cdi.directory (/var/run/cdi) and dirs.run (/run/cdi) must not",
    "labels.featuresDir=/var/lib/vgpu/x": "labels.featuresDir (/var/lib/vgpu/x) and dirs.state",
    "dirs.state=/run/own": "dirs.state is /run/own, which a reboot empties",
    "dirs.state=/var/run/own": "dirs.state is /var/run/own, which a reboot empties",
    # ---- the rest
    "namespace.name=kube-system": "but every cluster has kube-system already",
    "priorityClass.name=high": "so set priorityClass.create to true",
    "policy.enabled=false,policy.strictVisibleDevices.enabled=true": "set policy.enabled to true",
    f"{WEBHOOK},mutation.apiVersion=v1": "which is of a policy",
    "mutation.enabled=true,mutation.mode=policy": "this cluster serves no MutatingAdmissionPolicy",
    "mutation.enabled=true,mutation.apiVersion=v1": "MutatingAdmissionPolicy v1 from 1.36 on, and",
    f"{WEBHOOK},mutation.webhook.tlsSecret=a,mutation.webhook.certManager=true":
        "mutation.webhook.tlsSecret is a, and mutation.webhook.certManager is true",
    f"{WEBHOOK},mutation.webhook.tlsSecret=a": "but mutation.webhook.caBundle is empty",
    f"{WEBHOOK},mutation.webhook.caBundle={PEM}": "but mutation.webhook.tlsSecret is empty",
    f"{WEBHOOK},mutation.webhook.tlsSecret=a,mutation.webhook.caBundle=LS0t":
        "mutation.webhook.caBundle is no certificate in PEM",
    f"{SCHEDULER},scheduler.tlsSecret=a,scheduler.certManager=true":
        "leave tlsSecret empty or set certManager to false",
    f"{SCHEDULER},agent.publish=false": "set agent.publish to true as well",
    f"{SCHEDULER},scheduler.config=a": "there is one config without a name",
    f"{SCHEDULER},{TWO},scheduler.config=c": "config is c, which is none of configs: a, b",
    f"{SCHEDULER},{TWO}": "set scheduler.config to the name of the one whose quotas hold",
    f"{SCHEDULER},scheduler.extraArgs={{--address=:1}}": "leave it out and set scheduler.port",
    f"{SCHEDULER},scheduler.electionNamespace=vgpu-system": "any of them could stop all binding",
    f"{SCHEDULER},scheduler.extraArgs={{--election-namespace=x}}": "scheduler.electionNamespace",
    f"{SCHEDULER},scheduler.extraArgs={{--client-ca=/x}}": "set scheduler.clientCertificate",
    f"{SCHEDULER},scheduler.probePort=8443": "scheduler.port and scheduler.probePort are 8443",
    f"{WEBHOOK},mutation.webhook.probePort=8443": "mutation.webhook.probePort are 8443",
    f"{WEBHOOK},mutation.webhook.clientCA=LS0t": "mutation.webhook.clientCA is no certificate",
    f"{SCHEDULER},scheduler.extraArgs={{--plain-http}}": "the chart go by: leave it out",
    f"{SCHEDULER},scheduler.extraArgs={{--no-leader-elect}}": "or set scheduler.replicas to 1",
}  # fmt: skip
#: What is much like it and can be.
TAKEN = [
    "config=version: v1",
    "existingConfigMap=m,configSelection.enabled=true,configSelection.default=a",
    f"{TWO},configSelection.default=b",
    "config=flags: {mpsRoot: /mps/x/},dirs.mpsRoot=/mps/x",
    "config=version: v1\nflags:,dirs.mpsRoot=/mps/x",
    "config=sharing: {fractional: [{family: vgpu}]},mps.enabled=false",
    "config=sharing: {mps: {}},mps.enabled=false",
    "config=sharing:\\nflags:\\nlabels:",
    "config=flags: {plugin: x\\, gfd: [x]}",
    "config=sharing: {fractional: {family: mps}\\, mps: x}",
    "config=sharing: {fractional: [mps]}",
    "config=resourceDomain:",
    "config=labels: {writeTo: node},labels.patchNode=true",
    "config=labels: {writeTo: none},labels.featuresDir=",
    "config=flags: {gfd: {outputFile: /nfd/own/gfd}},labels.featuresDir=/nfd/own",
    "config=flags: {gfd: {outputFile: ''}}",
    "config=flags: {useNodeFeatureAPI: true\\, gfd: {outputFile: /x/y}},labels.nodeFeatureApi=true",
    "config=flags: {plugin: {cdiSpecDir: /run/cdi}}",
    "config=flags: {plugin: {deviceListStrategy: envvar}},cdi.directory=",
    "dirs.run=/run/vgpu-of-another,dirs.state=/var/lib/vgpu-of-another",
    "namespace.name=kube-system,namespace.create=false",
    "namespace.name=default,namespace.create=false",
    "priorityClass.create=true,priorityClass.name=high",
    "policy.enabled=false",
    "mutation.enabled=true,mutation.mode=policy,mutation.apiVersion=v1beta1",
    "mutation.mode=policy",
    "mutation.webhook.tlsSecret=a",
    f"{WEBHOOK},mutation.webhook.tlsSecret=a,mutation.webhook.caBundle={PEM}",
    f"{WEBHOOK},mutation.webhook.certManager=true",
    f"{SCHEDULER},scheduler.bind=false,scheduler.extraArgs={{--no-leader-elect}}",
    f"{SCHEDULER},scheduler.replicas=1,scheduler.extraArgs={{--no-leader-elect}}",
    f"{SCHEDULER},scheduler.extraArgs={{--body-limit=64}}",
    f"{SCHEDULER},existingConfigMap=m,configSelection.enabled=true,scheduler.config=a",
]


@cache
def said(values: str) -> str:
    """Returns what helm says against values, empty where it takes them."""
    text, error = install.template("--set", values)
    assert bool(text) != bool(error), error
    return error


@pytest.mark.parametrize("values", REFUSED)
def test_what_cannot_be_together_is_refused_with_what_to_set(values: str) -> None:
    assert "these values cannot be together:\n- " in said(values)
    assert REFUSED[values] in said(values)


@pytest.mark.parametrize("values", TAKEN)
def test_what_can_be_is_taken(values: str) -> None:
    assert said(values) == ""


def test_all_of_them_are_told_at_once() -> None:
    told = said(
        "dirs.state=/run/own,agent.publish=false,scheduler.enabled=true,priorityClass.name=x"
    )

    assert len(re.findall(r"^- ", told, re.M)) == 3


def sentences() -> list[re.Pattern[str]]:
    """Returns what each line of the template may say."""
    body = SENTENCES.read_text().partition('{{- define "vgpu.warnings"')[0]
    body = re.sub(r"\{\{-? ?/\*.*?\*/\}\}", "", body, flags=re.S)
    lines = [line for line in body.splitlines() if re.match(r"\w|\{\{ ", line)]
    return [
        re.compile("^- " + ".*".join(map(re.escape, re.split(r"\{\{.*?\}\}", line))), re.M)
        for line in lines
    ]


def test_every_sentence_of_the_template_is_said_once() -> None:
    told = [said(values) for values in REFUSED]
    found = sentences()

    assert len(found) > 25
    assert [each.pattern for each in found if not any(map(each.search, told))] == []


def test_no_other_template_refuses_anything() -> None:
    templates = install.CHART / "templates"
    refusing = {
        path.name for path in templates.iterdir() if re.search(r"\bfail\b[ (]", path.read_text())
    }

    assert refusing - {"amounts.yaml"} == {SENTENCES.name}  # where it is a word


# ---- what only a look at the cluster tells -------------------------------------------------------


def warnings(tmp_path: Path, *arguments: str) -> str:
    """Returns the warnings of NOTES.txt, which `helm template` does not show."""
    chart = tmp_path / "chart"
    if not chart.exists():
        shutil.copytree(install.CHART, chart)
        (chart / "templates/shown.yaml").write_text(
            'shown: {{ include "vgpu.warnings" . | trim | quote }}'
        )
    text, error = install.template("--show-only", "templates/shown.yaml", *arguments, chart=chart)
    assert not error, error
    return str(yaml.safe_load(text)["shown"])


@pytest.mark.parametrize(
    ("values", "says", "without"),
    [
        ("podMonitor.enabled=true", "serves no PodMonitor: install the Prometheus Operator first",
         "monitoring.coreos.com/v1/PodMonitor"),
        ("prometheusRule.enabled=true", "serves no PrometheusRule",
         "monitoring.coreos.com/v1/PrometheusRule"),
        (f"{SCHEDULER},scheduler.bind=false,scheduler.certManager=true",
         "scheduler.certManager is true, but this",
         "cert-manager.io/v1/Certificate"),
        (f"{WEBHOOK},mutation.webhook.certManager=true", "mutation.webhook.certManager is true",
         "cert-manager.io/v1/Certificate"),
    ],
)  # fmt: skip
def test_kinds_that_the_cluster_does_not_serve_are_told(
    tmp_path: Path, values: str, says: str, without: str
) -> None:
    assert says in warnings(tmp_path, "--set", values)
    assert warnings(tmp_path, "--set", values, "--api-versions", without) == ""


def test_an_extender_that_everybody_reaches_is_told(tmp_path: Path) -> None:
    peers = "networkPolicy.from.scheduler[0].ipBlock.cidr=10.0.0.0/8"
    known = f"{SCHEDULER},scheduler.clientCertificate.required=false"
    for values in (known, f"{known},{peers}", f"{known},networkPolicy.enabled=true"):
        assert "Every pod of the cluster reaches" in warnings(tmp_path, "--set", values)
    for closed in (
        SCHEDULER,
        f"{known},networkPolicy.enabled=true,{peers}",
        f"{known},scheduler.bind=false",
    ):
        assert warnings(tmp_path, "--set", closed) == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--namespace", "vgpu-system"), "kubectl label namespace vgpu-system pod-security"),
        (("--set", "namespace.create=false,namespace.name=x"), "kubectl label namespace x pod-"),
        (("--set", TWO), "has no config: set configSelection.default to one of a, b"),
    ],
)
def test_what_somebody_else_has_to_do_is_told(
    tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    assert says in warnings(tmp_path, *arguments)
    assert warnings(tmp_path) == ""
    assert warnings(tmp_path, "--set", f"{TWO},configSelection.default=a") == ""
    assert warnings(tmp_path, "--set", "configs.only=version: v1") == ""
