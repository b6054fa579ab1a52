"""Parts of the chart that are chosen: named configs, a ConfigMap of one's own, rights, metrics."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from deviceplugin.config.loading import load_config
from deviceplugin.http.metric_names import METRICS
from support import ROOT
from support.cluster import install, policy_pods

pytestmark = install.MARKS
CONFIGS = ["--set", "configs.default=version: v1,configs.a100-80gb-config=version: v1"]


def pod(found: dict[tuple[str, str], dict[str, Any]], name: str) -> dict[str, Any]:
    return found["DaemonSet", name]["spec"]["template"]["spec"]  # type: ignore[no-any-return]


def rights(found: dict[tuple[str, str], dict[str, Any]]) -> set[tuple[str, str]]:
    rules = [
        rule
        for (kind, name), each in found.items()
        if kind in ("ClusterRole", "Role") and name == "vgpu-agent"
        for rule in each["rules"]
    ]
    return {(resource, verb) for r in rules for resource in r["resources"] for verb in r["verbs"]}


def test_the_namespace_of_the_release_is_left_to_helm() -> None:
    """``--create-namespace`` makes it after the chart was rendered: both would make it."""
    own = install.objects("--namespace", "vgpu-system", "--create-namespace")
    other = install.objects("--namespace", "tools")

    assert ("Namespace", "vgpu-system") not in own
    assert other["Namespace", "vgpu-system"]["metadata"]["labels"][
        "pod-security.kubernetes.io/enforce"
    ] == ("privileged")
    assert {o["metadata"].get("namespace", "vgpu-system") for o in own.values()} == {"vgpu-system"}


def test_named_configs_are_selected_by_the_nodes_label(tmp_path: Path) -> None:
    found = install.objects(*CONFIGS, "--set", "configSelection.default=default")

    data = found["ConfigMap", "vgpu-config"]["data"]
    assert set(data) == {"default", "a100-80gb-config"}
    for name, text in data.items():
        (tmp_path / name).write_text(text)
        assert load_config(tmp_path / name).resource_domain == "nvidia.com"
    (agent,), (runner,) = (pod(found, part)["containers"] for part in ("vgpu-agent", "vgpu-mps"))
    env = {each["name"]: each.get("value") for each in agent["env"]}
    assert env["NODE_LABEL"] == "nvidia.com/device-plugin.config"
    assert env["DEFAULT_CONFIG"] == "default"
    assert env["FALLBACK_STRATEGIES"] == "named,single"
    assert "NODE_NAME" in env
    assert "--config=/etc/vgpu" in agent["args"]
    assert "--config=/etc/vgpu" in runner["args"]
    # The runner asks nobody, but reads what the agent selected.
    kept = {m["mountPath"]: m for m in runner["volumeMounts"]}["/var/lib/vgpu"]
    assert kept["readOnly"]
    assert {"name": "VGPU_STATE_DIR", "value": "/var/lib/vgpu"} in runner["env"]
    assert ("nodes", "get") in rights(found)
    assert ("nodes", "patch") not in rights(found)


@pytest.mark.parametrize(
    ("more", "argument"),
    [
        ((), "--config=/etc/vgpu/config.yaml"),
        (("configSelection.enabled=true",), "--config=/etc/vgpu"),
    ],
)
def test_a_config_map_of_ones_own_is_mounted_and_none_is_made(
    more: tuple[str, ...], argument: str
) -> None:
    found = install.objects(*(a for s in ("existingConfigMap=mine", *more) for a in ("--set", s)))

    assert not [name for kind, name in found if kind == "ConfigMap"]
    for part in ("vgpu-agent", "vgpu-mps"):
        volumes = {v["name"]: v for v in pod(found, part)["volumes"]}
        assert volumes["config"]["configMap"] == {"name": "mine"}
        assert argument in pod(found, part)["containers"][0]["args"]


def test_rights_and_directories_for_labels_and_devices_are_chosen() -> None:
    usual = install.objects()
    least = install.objects("--set", "agent.publish=false")
    assert {r for r, _ in rights(least)} == {"pods", "events"}
    assert ("Role", "vgpu-agent") not in least
    assert "--no-publish" in pod(least, "vgpu-agent")["containers"][0]["args"]
    assert "--no-publish" not in pod(usual, "vgpu-agent")["containers"][0]["args"]
    assert rights(usual) - rights(least) == {
        ("nodes", "get"),
        ("leases", "create"),
        ("leases", "patch"),
    }
    by_itself = "version: v1\nflags: {plugin: {deviceListStrategy: auto}}\n"
    by_itself = f"agent.publish=false,config={by_itself}"
    assert rights(install.objects("--set", by_itself)) - rights(least) == {("nodes", "get")}
    chosen = "labels.nodeFeatureApi=true,labels.patchNode=true,agent.publish=false"
    more = install.objects("--set", chosen)
    assert rights(more) - rights(least) == {
        ("nodes", "get"),
        ("nodes", "patch"),
        ("nodefeatures", "get"),
        ("nodefeatures", "create"),
        ("nodefeatures", "patch"),
    }
    (subject,) = more["RoleBinding", "vgpu-agent"]["subjects"]
    assert subject in more["ClusterRoleBinding", "vgpu-agent"]["subjects"]

    def writable(found: Any) -> set[str]:
        (container,) = pod(found, "vgpu-agent")["containers"]
        return {m["mountPath"] for m in container["volumeMounts"] if not m.get("readOnly")}

    without = install.objects("--set", "labels.featuresDir=,cdi.directory=")
    assert writable(usual) - writable(without) == {
        "/etc/kubernetes/node-feature-discovery/features.d",
        "/var/run/cdi",
    }
    volumes = {v["name"]: v for v in pod(usual, "vgpu-agent")["volumes"]}
    for name in ("features", "cdi"):
        assert volumes[name]["hostPath"]["type"] == "DirectoryOrCreate"
    assert {"features", "cdi"}.isdisjoint(v["name"] for v in pod(without, "vgpu-agent")["volumes"])


def test_dashboards_are_made_as_they_stand_where_asked_for() -> None:
    found = install.objects("--set", "grafanaDashboards.enabled=true")
    files = sorted((install.CHART / "files/dashboards").glob("*.json"))
    assert files
    for file in files:
        made = found["ConfigMap", f"vgpu-dashboard-{file.stem}"]
        assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert json.loads(made["data"][f"vgpu-{file.name}"]) == json.loads(file.read_text())
    assert not any("dashboard" in name for _, name in install.objects())


def test_rules_are_made_as_they_stand_where_asked_for() -> None:
    found = install.objects("--set", "prometheusRule.enabled=true,prometheusRule.labels.release=x")
    rule = found["PrometheusRule", "vgpu"]
    assert rule["metadata"]["labels"]["release"] == "x"
    assert rule["spec"] == yaml.safe_load((install.CHART / "files/rules.yaml").read_text())
    assert not any(kind == "PrometheusRule" for kind, _ in install.objects())


def test_the_monitor_scrapes_the_agents_port_and_keeps_our_labels() -> None:
    settings = "podMonitor.enabled=true,podMonitor.interval=30s,podMonitor.labels.release=x"
    found = install.objects("--set", settings)
    monitor = found["PodMonitor", "vgpu-agent"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    template = found["DaemonSet", "vgpu-agent"]["spec"]["template"]
    ports = {p["name"] for p in template["spec"]["containers"][0]["ports"]}

    assert (
        monitor["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    )
    assert endpoint["port"] in ports
    assert (endpoint["honorLabels"], endpoint["interval"]) == (True, "30s")
    assert monitor["metadata"]["labels"]["release"] == "x"
    # Without honorLabels the scrape's own would take their names.
    assert any("namespace" in m.labels for m in METRICS)


def test_both_charts_run_where_the_operators_plugin_does_not() -> None:
    found = install.objects("--values", "deploy/examples/gpu-operator/vgpu-values.yaml")

    for part in ("vgpu-agent", "vgpu-mps"):
        assert pod(found, part)["nodeSelector"] == {
            "kubernetes.io/arch": "amd64",
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.deploy.client": "true",
            "nvidia.com/gpu.deploy.device-plugin": "false",
        }
    assert ("Deployment", "vgpu-webhook") in found
    rules = yaml.safe_load(found["ConfigMap", "vgpu-webhook"]["data"]["rules.json"])
    # What the Operator evicts by.
    assert rules["markerResource"].startswith("nvidia.com/gpu")
    theirs = yaml.safe_load(
        (ROOT / "deploy/examples/gpu-operator/gpu-operator-values.yaml").read_text()
    )
    key, _, value = theirs["driver"]["upgradePolicy"]["waitForCompletion"]["podSelector"].partition(
        "="
    )
    assert rules["labels"] == {key: value}


def test_both_pods_mount_the_mps_root_and_are_told_of_it() -> None:
    found = install.objects("--set", "dirs.mpsRoot=/run/nvidia/mps")
    # A file system that is mounted there later is seen, as it is by containers that start. The
    # runner itself mounts pipe directories.
    for name, propagation in (("vgpu-agent", "HostToContainer"), ("vgpu-mps", "Bidirectional")):
        spec = pod(found, name)
        (container,) = spec["containers"]
        assert "--mps-root=/run/nvidia/mps" in container["args"]
        (mount,) = (m for m in container["volumeMounts"] if m["name"] == "mps-root")
        assert mount["mountPath"] == "/run/nvidia/mps"
        assert mount["mountPropagation"] == propagation
        (volume,) = (v for v in spec["volumes"] if v["name"] == "mps-root")
        assert volume["hostPath"]["path"] == "/run/nvidia/mps"


def test_without_an_mps_root_no_pod_knows_of_one() -> None:
    assert "mps-root" not in install.render()


def test_no_pod_with_a_slice_reaches_the_mps_root_of_the_node() -> None:
    """There are the control pipes of all GPUs, which are in the run directory otherwise."""
    text = install.render("--set", "dirs.mpsRoot=/var/run/nvidia/mps")
    pods = []
    for path in ("/run/nvidia/mps/GPU-a/pipe", "/run/nvidia", "/run/nvidia/other"):
        (asking,) = policy_pods.of_names(["nvidia.com/mps-core"])
        del asking["spec"]["containers"][0]["env"]
        policy_pods.host_path(path)(asking)
        pods.append({"name": "", "namespace": "x", "manifest": asking})
    refusals = [each.refused for each in install.judge(text, pods)]
    assert [bool(each) for each in refusals] == [True, True, False]
    assert "/run/nvidia/mps/" in str(refusals[0])
