"""The dashboards' queries, by a real Prometheus that scrapes a real agent and a real extender.

The agent shares simulated GPUs, and pods hold slices of them. Every query is one that Prometheus
understands, and has an answer where there is something to see.
"""

import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.dashboards.prometheus import Prometheus
from benchmarks.dashboards.queries import FILES, dashboards, legend, targets
from benchmarks.extender_nodes import NAMESPACE, cluster_of
from benchmarks.simulated_cluster.extender_process import running_extender
from libvgpu.errors import UsageError
from support import ROOT
from support.cluster.control_plane import UNMARKED
from support.cluster.rule_cases import not_exported
from support.node.simulated import SimulatedNode
from support.suite.leftovers import MARK
from support.waiting import wait_until

DASHBOARDS = dashboards()
CONFIG = """version: v1
sharing:
  fractional:
    - {family: vgpu, devices: [0, 1, 2, 3], memoryUnit: 1Gi}
"""
RESOURCES = ["nvidia.com/vgpu-core", "nvidia.com/vgpu-memory", "nvidia.com/gpu"]
#: The agent of one node is scraped as that of both.
NODES = ("n1", "n2")
#: Of what nobody does here: binds, programs that run in the containers, alerts.
MAY_BE_EMPTY = (
    "vgpu_scheduler_binds_total", "vgpu_gpu_mode_seconds_total", "ALERTS",
    "vgpu_container_core_wanted_ratio",
)  # fmt: skip
MOST_PICTURE_BYTES = 150_000
VARIABLE = re.compile(r"\$(\w+)")


def queries(dashboard: dict[str, Any]) -> list[str]:
    """Returns all queries, for everything that could be chosen."""
    return [each.query for panel in dashboard["panels"] for each in targets(panel, dashboard)]


@pytest.fixture(scope="module")
def prometheus() -> Iterator[Prometheus]:
    """One that has scraped an agent with two slices and an extender for some seconds."""
    with tempfile.TemporaryDirectory(prefix="vgpu-") as folder:
        base = Path(folder)
        (base / "cluster").mkdir()
        # It serves all tests here, so no single test is to end it (`leftovers`).
        node = SimulatedNode(base, "t4*5", CONFIG, RESOURCES, variables={MARK: ""})
        try:
            for pod, core in (("train", 30), ("serve", 60)):
                node.admit(pod, vgpu_core=core, vgpu_memory=4)
            node.admit("two", vgpu_core=200)
            found = re.search(r"metrics=127\.0\.0\.1:(\d+)", node.log)
            assert found is not None, node.log
            with (
                cluster_of(base / "cluster", 2, 0.5, 1) as (server, _),
                running_extender(server, base / "cluster", NAMESPACE) as extender,
            ):
                scraped = [("vgpu-agent", int(found[1]), name) for name in NODES]
                scraped.append(("vgpu-scheduler", extender.port, "control"))
                try:
                    running = Prometheus(base, scraped, UNMARKED)
                except UsageError as error:
                    pytest.skip(f"{error.message}; {error.hint}")
                try:
                    extender.client().filter({"metadata": {"name": "p", "namespace": "d",
                                                           "uid": "u"}, "spec": {
                        "containers": [{"name": "c", "resources": {"limits": {
                            "nvidia.com/vgpu-core": "10"}}}]}}, ["n0000"])  # fmt: skip
                    wait_until(lambda: len(running.ask("up == 1")) == 3, "both are scraped")
                    yield running
                finally:
                    running.stop()
        finally:
            node.close()


@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_metrics_of_queries_are_exported(name: str) -> None:
    assert [each for query in queries(DASHBOARDS[name]) for each in not_exported(query)] == []


@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_every_query_has_an_answer(prometheus: Prometheus, name: str) -> None:
    asked = queries(DASHBOARDS[name])
    assert asked
    for query in asked:
        if any(metric in query for metric in MAY_BE_EMPTY):
            prometheus.ask(query)  # it is understood
        else:
            wait_until(partial(prometheus.ask, query), f"an answer to {query}")


def test_what_is_shown_is_what_was_given(prometheus: Prometheus) -> None:
    """Two slices of 4 of 15 units: 8 GiB; 30 and 60 percent of one GPU."""
    chosen = '{node="n1",pod!="two"}'
    (memory,) = prometheus.ask(f"sum(vgpu_container_memory_limit_bytes{chosen})")
    assert float(memory["value"][1]) == 8 << 30
    (core,) = prometheus.ask(f"sum(vgpu_container_core_limit_ratio{chosen})")
    assert float(core["value"][1]) == pytest.approx(0.9)


def test_whole_gpus_count_as_none_that_is_shared(prometheus: Prometheus) -> None:
    """Of five GPUs four are shared: two are one container's, and another one has a half."""
    (shared,) = prometheus.ask(DASHBOARDS["cluster"]["panels"][0]["targets"][0]["expr"])
    assert int(shared["value"][1]) == 4 * len(NODES)
    (given,) = prometheus.ask('vgpu:node_memory_allocated:ratio{node="n1"}')
    (of_all,) = prometheus.ask(
        'sum(vgpu_gpu_memory_allocated_bytes{node="n1"})'
        ' / sum(vgpu_gpu_memory_total_bytes{node="n1"})'
    )
    assert float(given["value"][1]) == pytest.approx(float(of_all["value"][1]) * 5 / 4)


@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_no_legend_stands_for_two_series(prometheus: Prometheus, name: str) -> None:
    """Two nodes have GPUs of the same indexes, and one container has two GPUs.

    Here both nodes are one agent's, so they have GPUs of the same UUIDs, too, as nodes never do.
    """
    for panel in DASHBOARDS[name]["panels"]:
        shown = Counter(
            legend(each.legend, answer["metric"])
            for each in targets(panel, DASHBOARDS[name])
            for answer in prometheus.ask(each.query)
            if "{{gpu}}" not in each.legend or answer["metric"]["node"] == NODES[0]
        )
        assert "" not in shown, panel["title"]
        assert max(shown.values(), default=1) == 1, (panel["title"], shown)


def test_variables_are_chosen_by_labels_that_there_are(prometheus: Prometheus) -> None:
    pattern = re.compile(r"label_values\((.+), (\w+)\)")
    for dashboard in DASHBOARDS.values():
        for variable in dashboard["templating"]["list"]:
            if variable["type"] == "query":
                found = pattern.fullmatch(variable["definition"])
                assert found is not None, variable
                answers = prometheus.ask(VARIABLE.sub(".*", found[1]))
                assert all(found[2] in each["metric"] for each in answers)
                assert answers


def test_the_files_are_what_the_generator_writes(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, str(ROOT / "deploy/grafana/generate.py"), str(tmp_path)], check=True
    )
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert written == {path.name: path.read_text() for path in FILES.glob("dashboards/*.json")}


@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_the_page_has_a_picture_and_says_what_each_panel_means(name: str) -> None:
    text = (ROOT / "docs/dashboards.md").read_text()
    picture = ROOT / f"docs/dashboards/{name}.png"

    assert f"](dashboards/{name}.png)" in text
    assert picture.stat().st_size < MOST_PICTURE_BYTES
    _, _, section = text.partition(f"](dashboards/{name}.png)")
    section = section.partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| ")]
    cells = ", ".join(cell.strip() for cell in rows[1:])
    assert cells == ", ".join(panel["title"] for panel in DASHBOARDS[name]["panels"])


def test_panels_are_of_known_units_and_have_titles() -> None:
    for dashboard in DASHBOARDS.values():
        titles = [panel["title"] for panel in dashboard["panels"]]
        assert len(titles) == len(set(titles))
        units = {panel["fieldConfig"]["defaults"]["unit"] for panel in dashboard["panels"]}
        assert units <= {"short", "bytes", "percentunit", "s", "ops"}
