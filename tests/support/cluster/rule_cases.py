"""When each alert of the chart's rules fires and when not, as near to its thresholds as the field
allows, and Prometheus' own tool, which judges that.

Amounts of anything that is measured lie within 6 % of the threshold on both sides; what is counted
in whole things (GPUs, processes, replicas) by one of them.
"""

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from deviceplugin.http import metric_names
from deviceplugin.scheduler import metric_names as scheduler_metric_names
from support import ROOT
from support.ended import run_to_end

RULES = ROOT / "deploy/chart/files/rules.yaml"
GROUPS = yaml.safe_load(RULES.read_text())["groups"]
ALERTS = {rule["alert"]: rule for group in GROUPS for rule in group["rules"] if "alert" in rule}
RECORDS = {rule["record"]: rule for group in GROUPS for rule in group["rules"] if "record" in rule}
POD = {"namespace": "team", "pod": "train"}
GPU = {"gpu": "GPU-1", "index": "3"}
NODE = {"node": "n1"}
MIB = 1 << 20
TOOL_S = 60
#: Patience is held to within a twentieth, and the tool looks several times as often as that.
_TWENTIETH = 20
_LOOKS = 3
_NO_PATIENCE_S = 600


@dataclass(frozen=True)
class Case:
    """When an alert fires.

    Attributes:
        metric: with which it does, and the labels of its series.
        fires: values a minute, as promtool takes them, with which the alert fires.
        quiet: values with which it never does.
        summary: what it says.
        kept: labels of the series that the alert has; None: all.
        more: other series: name with labels, values with which it fires, and with which not.
        begins_s: from when on the rule's expression holds with `fires`.
    """

    metric: str
    labels: dict[str, str]
    fires: str
    quiet: str
    summary: str
    kept: tuple[str, ...] | None = None
    more: tuple[tuple[str, str, str], ...] = ()
    begins_s: int = 0


#: How many seconds the cause of an alert lasts before the alert fires.
PATIENCE_S = {
    "VgpuAgentDown": 300, "VgpuNoAgents": 600, "VgpuConfigRejected": 120,
    "VgpuPodresourcesDown": 300, "VgpuResourceNotRegistered": 300,
    "VgpuInventoryNotPublished": 600, "VgpuWatchDown": 900, "VgpuDriverDown": 120,
    "VgpuGpuUnhealthy": 60, "VgpuGpusLeftOut": 600, "VgpuGpuMemoryUnaccounted": 600,
    "VgpuMpsDown": 300, "VgpuMpsFaults": 0, "VgpuMemoryRefused": 600, "VgpuCapBinds": 3600,
    "VgpuShareMissed": 600, "VgpuContainerMemoryUnaccounted": 600, "VgpuBypass": 300,
    "VgpuUsageUnreadable": 600, "VgpuSchedulerStateOld": 120, "VgpuSchedulerNoLeader": 120,
    "VgpuSchedulerTwoLeaders": 60, "VgpuSchedulerSlow": 600,
}  # fmt: skip

_CALLS = "vgpu_scheduler_call_duration_seconds_bucket"
_WANTED = 'vgpu_container_core_wanted_ratio{namespace="team",pod="train"}'
_LIMIT = 'vgpu_container_core_limit_ratio{namespace="team",pod="train"}'

CASES = {
    "VgpuNoAgents": Case("vgpu_driver_up", NODE, "_x20", "1x20", "no node agent is scraped", ()),
    "VgpuAgentDown": Case("up", {"job": "vgpu-system/vgpu-agent", **NODE}, "0x20", "1x20",
                          "vgpu-system/vgpu-agent on n1 does not answer"),
    "VgpuConfigRejected": Case("vgpu_config_reload_success", NODE, "0x20", "1x20",
                               "a config is not in force on n1"),
    "VgpuConfigRejected of the extender": Case(
        "vgpu_scheduler_config_reload_success", {"instance": "s"}, "0x20", "1x20",
        "a config is not in force on s"),
    "VgpuPodresourcesDown": Case("vgpu_podresources_up", NODE, "0x20", "1x20",
                                 "the kubelet on n1 does not say whose devices are"),
    "VgpuResourceNotRegistered": Case(
        "vgpu_resource_registered", {"resource": "nvidia.com/vgpu-core", "instance": "10.0.0.1:1"},
        "0x20", "1x20", "nvidia.com/vgpu-core is not registered on 10.0.0.1:1"),
    "VgpuInventoryNotPublished": Case("vgpu_inventory_published", NODE, "0x30", "0 0 1x30",
                                      "schedulers do not know what n1 has"),
    "VgpuWatchDown": Case("vgpu_watch_up", NODE, "0x30", "1x30",
                          "the agent on n1 cannot see the processes on its GPUs"),
    "VgpuDriverDown": Case("vgpu_driver_up", NODE, "0x20", "1x20",
                           "the NVIDIA driver on n1 lists no GPUs"),
    "VgpuGpuUnhealthy": Case("vgpu_gpu_healthy", GPU, "1 0x20", "1x20",
                             "GPU 3 (GPU-1) is unhealthy", begins_s=60),
    "VgpuGpusLeftOut": Case("vgpu_gpus_left_out", NODE, "1x20", "0x20",
                            "1 GPUs of n1 were never offered"),
    "VgpuGpuMemoryUnaccounted": Case(
        "vgpu_gpu_memory_unaccounted_bytes", GPU, f"{67 * MIB}x20", f"{61 * MIB}x20",
        "67MiB of GPU 3 (GPU-1) belong to no slice"),
    "VgpuMpsDown": Case("vgpu_mps_ready", {"gpu": "GPU-1"}, "0x20", "0 0 0 1x20",
                        "MPS does not serve GPU GPU-1"),
    "VgpuMpsFaults": Case("vgpu_mps_restarts_total", {"gpu": "GPU-1"}, "0x9 2.65x70", "0x9 2.35x70",
                          "MPS of GPU GPU-1 has ended again and again", begins_s=1800),
    "VgpuMpsFaults of clients": Case(
        "vgpu_mps_client_faults_total", {"gpu": "GPU-1"}, "0x9 2.65x70", "0x9 2.35x70",
        "MPS of GPU GPU-1 has ended again and again", begins_s=1800),
    "VgpuMemoryRefused": Case("vgpu_container_memory_refused_total", POD, "0+0.09x40", "9x40",
                              "team/train is refused memory again and again", begins_s=60),
    "VgpuCapBinds": Case("vgpu_container_throttled_seconds_total", POD, "0+31.5x150", "0+28.5x150",
                         "team/train is held by its share 52.5% of the time", begins_s=290),
    "VgpuShareMissed": Case(
        "vgpu_container_core_used_ratio", POD, "0.38x40", "0.42x40",
        "team/train gets 76% of the GPU time that it is due",
        more=((_WANTED, "0.9x40", "1x40"), (_LIMIT, "0.5x40", "0.5x40"))),
    # It wants less than its share: what it wants is what it is due.
    "VgpuShareMissed of a part": Case(
        "vgpu_container_core_used_ratio", POD, "0.19x40", "0.21x40",
        "team/train gets 76% of the GPU time that it is due",
        more=((_WANTED, "0.25x40", "0.25x40"), (_LIMIT, "0.5x40", "0.5x40"))),
    "VgpuShareMissed of little": Case(
        "vgpu_container_core_used_ratio", POD, "0x40", "0x40",
        "team/train gets 0% of the GPU time that it is due",
        more=((_WANTED, "0.0525x40", "0.0475x40"), (_LIMIT, "0.5x40", "0.5x40"))),
    "VgpuContainerMemoryUnaccounted": Case(
        "vgpu_container_memory_unaccounted_bytes", POD, f"{67 * MIB}x20", f"{61 * MIB}x20",
        "team/train has 67MiB that its books do not know"),
    "VgpuBypass": Case("vgpu_container_bypassing_processes", POD, "1x20", "1 1 0x20",
                       "1 processes of team/train use the GPU without the shim"),
    "VgpuUsageUnreadable": Case("vgpu_container_usage_readable", POD, "0x20", "1x20",
                                "what team/train uses cannot be read"),
    "VgpuSchedulerStateOld": Case("vgpu_scheduler_state_age_seconds", {"pod": "s-0"}, "63x20",
                                  "57x20", "the extender s-0 does not know the cluster"),
    "VgpuSchedulerNoLeader": Case(
        "vgpu_scheduler_leader", {"namespace": "vgpu-system", "pod": "s-0"}, "0x20", "1x20",
        "no replica of the extender binds pods", ("namespace",)),
    "VgpuSchedulerTwoLeaders": Case(
        "vgpu_scheduler_leader", {"namespace": "vgpu-system"}, "2x20", "1x20",
        "2 replicas of the extender bind pods"),
    # 99 of 100 calls take 525 ms at most; where it is quiet, 475 ms.
    "VgpuSchedulerSlow": Case(
        _CALLS, {"call": "filter", "le": "0.25"}, "0+9000x40", "0+9000x40",
        "the extender takes 525ms for filter", ("call",), (
            (f'{_CALLS}{{call="filter",le="0.5"}}', "0+9894.737x40", "0+10000x40"),
            (f'{_CALLS}{{call="filter",le="1"}}', "0+10000x40", "0+10000x40"),
            (f'{_CALLS}{{call="filter",le="+Inf"}}', "0+10000x40", "0+10000x40")),
        begins_s=60),
}  # fmt: skip


def series(metric: str, labels: dict[str, str]) -> str:
    """Returns a series as promtool takes it."""
    return f"{metric}{{{','.join(f'{key}={value!r}' for key, value in labels.items())}}}".replace(
        "'", '"'
    )


def not_exported(expression: str) -> list[str]:
    """Returns the metrics of an expression that neither agent nor extender exports, nor a rule."""
    exported = {each.name for each in (*metric_names.METRICS, *scheduler_metric_names.METRICS)}
    named = re.findall(r"\bvgpu[_:][\w:]+", expression)
    return [
        name
        for name in named
        if re.sub(r"_(bucket|sum|count)$", "", name) not in exported | RECORDS.keys()
    ]


def seconds_of(text: str) -> int:
    """Returns a time as the rules have it, in seconds."""
    return int(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]


def inputs_of(name: str) -> list[dict[str, Any]]:
    """Returns what promtool tests of one case: silence before and an alert after the alert's
    patience, each by a twentieth of it, and silence all along where there is no cause."""
    case, alert = CASES[name], name.partition(" ")[0]
    rule = ALERTS[alert]
    patience_s = PATIENCE_S[alert]
    margin_s = (patience_s or _NO_PATIENCE_S) // _TWENTIETH
    fires_s = case.begins_s + patience_s + margin_s
    said = {
        "exp_labels": {
            key: value
            for key, value in case.labels.items()
            if case.kept is None or key in case.kept
        }
        | rule["labels"],
        "exp_annotations": {
            "summary": case.summary,
            "description": rule["annotations"]["description"],
            "runbook": rule["annotations"]["runbook"],
        },
    }
    before: list[tuple[int, list[Any]]] = [(fires_s - 2 * margin_s, [])] if patience_s else []

    def test(number: int, expected: list[tuple[int, list[Any]]]) -> dict[str, Any]:
        given = [
            (series(case.metric, case.labels), case.fires, case.quiet),
            *case.more,
        ]
        return {
            "interval": "1m",
            "input_series": [{"series": one[0], "values": one[1 + number]} for one in given],
            "alert_rule_test": [
                {"eval_time": f"{at_s}s", "alertname": alert, "exp_alerts": alerts}
                for at_s, alerts in expected
            ],
        }

    return [test(0, [*before, (fires_s, [said])]), test(1, [(fires_s, []), (2 * fires_s, [])])]


def step_s(alert: str) -> int:
    """Returns how often the tool is to evaluate the rules for the cases of an alert."""
    return (PATIENCE_S[alert] or _NO_PATIENCE_S) // _TWENTIETH // _LOOKS


def run_tool(
    folder: Path,
    tests: list[dict[str, Any]],
    interval_s: int = 60,
    alert: Mapping[str, Any] | None = None,
) -> "subprocess.CompletedProcess[str]":
    """Has the tool run tests of the rules.

    Args:
        folder: where it may write.
        interval_s: how often it evaluates the rules.
        alert: a rule, where the tests are of this alert alone: no rule reads another alert, and to
            evaluate all of them is most of the tool's work.
    """
    rules = RULES
    if alert is not None:
        rules = folder / "rules.yaml"
        alone = [
            group | {"rules": [rule for rule in group["rules"] if "record" in rule]}
            for group in GROUPS
        ]
        alone.append({"name": "the alert", "rules": [alert]})
        rules.write_text(yaml.safe_dump({"groups": alone}))
    file = folder / "tests.yaml"
    content = {"rule_files": [str(rules)], "evaluation_interval": f"{interval_s}s", "tests": tests}
    file.write_text(yaml.safe_dump(content))
    return run_to_end(["promtool", "test", "rules", str(file)], timeout=TOOL_S)
