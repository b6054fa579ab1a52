"""The rules of the chart by Prometheus' own tool: each alert fires when it should, and not else.

The metrics in them are those that the agent and the extender export.
"""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from deviceplugin.http import metric_names
from deviceplugin.scheduler import metric_names as scheduler_metric_names
from support import ROOT

RULES = ROOT / "deploy/chart/files/rules.yaml"
GROUPS = yaml.safe_load(RULES.read_text())["groups"]
ALERTS = {rule["alert"]: rule for group in GROUPS for rule in group["rules"] if "alert" in rule}
RECORDS = {rule["record"]: rule for group in GROUPS for rule in group["rules"] if "record" in rule}
POD = {"namespace": "team", "pod": "train"}
GPU = {"gpu": "GPU-1", "index": "3"}
MIB = 1 << 20
_TOOL_S = 60


@dataclass(frozen=True)
class Case:
    """When an alert fires.

    Attributes:
        metric: with which it does, and the labels of its series.
        fires: values a minute, as promtool takes them; after `minutes` the alert fires.
        quiet: values with which it never does.
        summary: what it says.
        kept: labels of the series that the alert has; None: all.
        more: other series of the same values.
    """

    metric: str
    labels: dict[str, str]
    fires: str
    quiet: str
    minutes: int
    summary: str
    kept: tuple[str, ...] | None = None
    more: tuple[str, ...] = ()


NODE = {"node": "n1"}
CASES = {
    "VgpuNoAgents": Case("vgpu_driver_up", NODE, "_x20", "1x20", 11,
                         "no node agent is scraped", ()),
    "VgpuAgentDown": Case("up", {"job": "vgpu-system/vgpu-agent", **NODE}, "0x20", "1x20", 6,
                          "vgpu-system/vgpu-agent on n1 does not answer"),
    "VgpuConfigRejected": Case("vgpu_config_reload_success", NODE, "0x20", "1x20", 3,
                               "a config is not in force on n1"),
    "VgpuConfigRejected of the extender": Case(
        "vgpu_scheduler_config_reload_success", {"instance": "s"}, "0x20", "1x20", 3,
        "a config is not in force on s"),
    "VgpuPodresourcesDown": Case("vgpu_podresources_up", NODE, "0x20", "1x20", 6,
                                 "the kubelet on n1 does not say whose devices are"),
    "VgpuResourceNotRegistered": Case(
        "vgpu_resource_registered", {"resource": "nvidia.com/vgpu-core", "instance": "10.0.0.1:1"},
        "0x20", "1x20", 6, "nvidia.com/vgpu-core is not registered on 10.0.0.1:1"),
    "VgpuInventoryNotPublished": Case("vgpu_inventory_published", NODE, "0x20", "0 0 1x20", 11,
                                      "schedulers do not know what n1 has"),
    "VgpuWatchDown": Case("vgpu_watch_up", NODE, "0x30", "1x30", 16,
                          "the agent on n1 cannot see the processes on its GPUs"),
    "VgpuDriverDown": Case("vgpu_driver_up", NODE, "0x20", "1x20", 3,
                           "the NVIDIA driver on n1 lists no GPUs"),
    "VgpuGpuUnhealthy": Case("vgpu_gpu_healthy", GPU, "1 0x20", "1x20", 3,
                             "GPU 3 (GPU-1) is unhealthy"),
    "VgpuGpusLeftOut": Case("vgpu_gpus_left_out", NODE, "2x20", "0x20", 11,
                            "2 GPUs of n1 were never offered"),
    "VgpuGpuMemoryUnaccounted": Case(
        "vgpu_gpu_memory_unaccounted_bytes", GPU, f"{128 * MIB}x20", f"{64 * MIB}x20", 11,
        "128MiB of GPU 3 (GPU-1) belong to no slice"),
    "VgpuMpsDown": Case("vgpu_mps_ready", {"gpu": "GPU-1"}, "0x20", "0 0 0 1x20", 6,
                        "MPS does not serve GPU GPU-1"),
    "VgpuMpsFaults": Case("vgpu_mps_restarts_total", {"gpu": "GPU-1"}, "0+1x70", "0x30 1x40", 65,
                          "MPS of GPU GPU-1 has ended again and again"),
    "VgpuMpsFaults of clients": Case(
        "vgpu_mps_client_faults_total", {"gpu": "GPU-1"}, "0+1x70", "0x30 2x40", 65,
        "MPS of GPU GPU-1 has ended again and again"),
    "VgpuMemoryRefused": Case("vgpu_container_memory_refused_total", POD, "0+3x40", "0x5 9x40", 25,
                              "team/train is refused memory again and again"),
    "VgpuCapBinds": Case("vgpu_container_throttled_seconds_total", POD, "0+36x90", "0+24x90", 70,
                         "team/train is held by its share 60% of the time"),
    "VgpuContainerMemoryUnaccounted": Case(
        "vgpu_container_memory_unaccounted_bytes", POD, f"{256 * MIB}x20", f"{MIB}x20", 11,
        "team/train has 256MiB that its books do not know"),
    "VgpuBypass": Case("vgpu_container_bypassing_processes", POD, "1x20", "1 1 0x20", 6,
                       "1 processes of team/train use the GPU without the shim"),
    "VgpuUsageUnreadable": Case("vgpu_container_usage_readable", POD, "0x20", "1x20", 11,
                                "what team/train uses cannot be read"),
    "VgpuSchedulerStateOld": Case("vgpu_scheduler_state_age_seconds", {"pod": "s-0"}, "90x20",
                                  "0.2x20", 3, "the extender s-0 does not know the cluster"),
    "VgpuSchedulerNoLeader": Case(
        "vgpu_scheduler_leader", {"namespace": "vgpu-system", "pod": "s-0"}, "0x20", "1x20", 3,
        "no replica of the extender binds pods", ("namespace",)),
    "VgpuSchedulerTwoLeaders": Case(
        "vgpu_scheduler_leader", {"namespace": "vgpu-system"}, "2x20", "1x20", 2,
        "2 replicas of the extender bind pods"),
    "VgpuSchedulerSlow": Case(
        "vgpu_scheduler_call_duration_seconds_bucket", {"call": "filter", "le": "1"}, "0+60x40",
        "0x40", 20, "the extender takes 990ms for filter", ("call",),
        ('vgpu_scheduler_call_duration_seconds_bucket{call="filter",le="+Inf"}',)),
}  # fmt: skip


def series(metric: str, labels: dict[str, str]) -> str:
    return f"{metric}{{{','.join(f'{key}={value!r}' for key, value in labels.items())}}}".replace(
        "'", '"'
    )


def minutes_of(text: str) -> int:
    """Returns a time as the rules have it, in minutes."""
    return int(text[:-1]) * {"m": 1, "h": 60}[text[-1]]


def run_tool(tmp_path: Path, tests: list[dict[str, Any]]) -> "subprocess.CompletedProcess[str]":
    """Has the tool run tests of the rules."""
    file = tmp_path / "tests.yaml"
    content = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}
    file.write_text(yaml.safe_dump(content))
    return subprocess.run(
        ["promtool", "test", "rules", str(file)],
        capture_output=True, text=True, timeout=_TOOL_S, check=False,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def tool() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not there; as root: sh deploy/dev/install-prerequisites.sh node")


def test_the_tool_accepts_the_rules() -> None:
    done = subprocess.run(
        ["promtool", "check", "rules", str(RULES)],
        capture_output=True, text=True, timeout=_TOOL_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case() -> None:
    assert {name.partition(" ")[0] for name in CASES} == ALERTS.keys()


@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_when_it_should_and_not_else(tmp_path: Path, name: str) -> None:
    case, name = CASES[name], name.partition(" ")[0]
    rule = ALERTS[name]
    labels = {k: v for k, v in case.labels.items() if case.kept is None or k in case.kept}
    alert = {
        "exp_labels": labels | rule["labels"],
        "exp_annotations": {
            "summary": case.summary,
            "description": rule["annotations"]["description"],
            "runbook": rule["annotations"]["runbook"],
        },
    }

    def test(values: str, *expected: tuple[int, list[dict[str, Any]]]) -> dict[str, Any]:
        names = (series(case.metric, case.labels), *case.more)
        return {
            "interval": "1m",
            "input_series": [{"series": each, "values": values} for each in names],
            "alert_rule_test": [
                {"eval_time": f"{minutes}m", "alertname": name, "exp_alerts": alerts}
                for minutes, alerts in expected
            ],
        }

    patience = minutes_of(rule.get("for", "0m"))
    early: list[tuple[int, list[dict[str, Any]]]] = [(patience - 1, [])] if patience else []
    done = run_tool(
        tmp_path,
        [
            test(case.fires, *early, (case.minutes, [alert])),
            test(case.quiet, (case.minutes, [])),
        ],
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "inputs", "value", "labels"),
    [
        ("vgpu:container_memory_used:ratio",
         {"vgpu_container_memory_used_bytes": 3, "vgpu_container_memory_limit_bytes": 12}, 0.25,
         POD),
        ("vgpu:container_core_used:ratio",
         {"vgpu_container_core_used_ratio": 0.3, "vgpu_container_core_limit_ratio": 0.6}, 0.5, POD),
        ("vgpu:container_throttled:ratio5m",
         {"vgpu_container_throttled_seconds_total": "0+30x20"}, 0.5, POD),
        ("vgpu:node_memory_allocated:ratio",
         {"vgpu_gpu_memory_allocated_bytes": 20, "vgpu_gpu_memory_total_bytes": 80}, 0.25, NODE),
        ("vgpu:node_core_allocated:ratio", {"vgpu_gpu_core_allocated_ratio": 0.4}, 0.4, NODE),
        ("vgpu:core_fragmentation:ratio",
         {"vgpu_scheduler_largest_free_core_ratio": 0.25, "vgpu_scheduler_free_core_ratio": 8},
         0.75, {"family": "vgpu"}),
    ],
    ids=[name.replace(":", "-") for name in RECORDS],
)  # fmt: skip
def test_a_recorded_share_is_what_it_says(
    tmp_path: Path, name: str, inputs: dict[str, Any], value: float, labels: dict[str, str]
) -> None:
    assert name in RECORDS
    done = run_tool(tmp_path, [{
        "interval": "1m",
        "input_series": [
            {"series": series(metric, labels), "values": given if isinstance(given, str)
             else f"{given}x20"}
            for metric, given in inputs.items()
        ],
        "promql_expr_test": [{
            "expr": name, "eval_time": "15m",
            "exp_samples": [{"labels": series(name, labels), "value": value}],
        }],
    }])  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_their_metrics_are_exported() -> None:
    exported = {each.name for each in (*metric_names.METRICS, *scheduler_metric_names.METRICS)}
    for rule in (*ALERTS.values(), *RECORDS.values()):
        for name in re.findall(r"\bvgpu_\w+", rule["expr"]):
            assert re.sub(r"_(bucket|sum|count)$", "", name) in exported, rule


def test_their_runbooks_are_sections_of_the_docs() -> None:
    text = (ROOT / "docs/troubleshooting.md").read_text()
    titles = re.findall(r"^## (.+)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
    assert {rule["annotations"]["runbook"] for rule in ALERTS.values()} <= anchors
