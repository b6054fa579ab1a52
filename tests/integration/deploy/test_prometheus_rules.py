"""The rules of the chart by Prometheus' own tool: each alert fires when it should, and not else.

The cases (`support.cluster.rule_cases`) hold to the rules' numbers and patience, in the gate, too.
The long form shows that a rule with another number fails them. The metrics in the rules are those
that the agent and the extender export.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import ROOT
from support.cluster.rule_cases import (
    ALERTS,
    CASES,
    NODE,
    PATIENCE_S,
    POD,
    RECORDS,
    RULES,
    TOOL_S,
    inputs_of,
    not_exported,
    run_tool,
    seconds_of,
    series,
    step_s,
)
from support.ended import run_to_end


@pytest.fixture(autouse=True)
def tool() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not there; as root: sh deploy/dev/install-prerequisites.sh node")


def test_the_tool_accepts_the_rules() -> None:
    done = run_to_end(["promtool", "check", "rules", str(RULES)], timeout=TOOL_S)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case() -> None:
    assert {name.partition(" ")[0] for name in CASES} == ALERTS.keys() == PATIENCE_S.keys()


@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_when_it_should_and_not_else(tmp_path: Path, name: str) -> None:
    alert = name.partition(" ")[0]
    done = run_tool(tmp_path, inputs_of(name), step_s(alert), ALERTS[alert])
    assert done.returncode == 0, done.stdout + done.stderr


#: A number of an expression that is neither part of a name nor of a range.
NUMBER = re.compile(r"(?<![\w.\[])\d+(?:\.\d+)?(?![\w.])")
#: Up to here numbers count whole things (GPUs, processes, restarts), and 0 is no amount.
MOST_COUNTED = 2


def other_numbers(text: str) -> list[str]:
    """Returns the numbers that are near to one but not it."""
    number = float(text)
    if number == int(number) <= MOST_COUNTED:
        return [str(int(number) - 1), str(int(number) + 1)]
    return [f"{number * factor:g}" for factor in (0.8, 1.2)]


def altered(rule: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields copies of a rule with one number each that is another, its patience included."""
    expression = rule["expr"]
    for found in NUMBER.finditer(expression):
        for other in other_numbers(found[0]):
            changed = expression[: found.start()] + f"({other})" + expression[found.end() :]
            yield {**rule, "expr": changed}
    if "for" in rule:
        for factor in (0.8, 1.2):
            yield {**rule, "for": f"{round(seconds_of(rule['for']) * factor)}s"}


@pytest.mark.long
@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_with_another_number_does_not_pass(tmp_path: Path, name: str) -> None:
    tests = [test for case in CASES if case.partition(" ")[0] == name for test in inputs_of(case)]
    others = list(altered(ALERTS[name]))
    if NUMBER.search(ALERTS[name]["expr"]):
        assert others

    for other in others:
        done = run_tool(tmp_path, tests, step_s(name), other)

        assert "FAILED" in done.stdout + done.stderr, (other["expr"], other.get("for"))
        assert "parse error" not in done.stdout + done.stderr, other["expr"]


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
        ("vgpu:container_core_due:ratio",
         {"vgpu_container_core_wanted_ratio": 0.9, "vgpu_container_core_limit_ratio": 0.6}, 0.6,
         POD),
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
    for rule in (*ALERTS.values(), *RECORDS.values()):
        assert not_exported(rule["expr"]) == [], rule


def test_their_runbooks_are_sections_of_the_docs() -> None:
    text = (ROOT / "docs/troubleshooting.md").read_text()
    titles = re.findall(r"^## (.+)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
    assert {rule["annotations"]["runbook"] for rule in ALERTS.values()} <= anchors


def test_their_severities_are_those_of_the_page() -> None:
    text = (ROOT / "docs/metrics-and-events.md").read_text()
    rows = re.findall(r"^\| (critical|warning|info) \| (.+) \|$", text, re.MULTILINE)
    told = {name: severity for severity, names in rows for name in re.findall(r"`(\w+)`", names)}
    assert told == {name: rule["labels"]["severity"] for name, rule in ALERTS.items()}
