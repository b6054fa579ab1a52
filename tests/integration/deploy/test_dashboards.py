"""The dashboards' queries, by a real Prometheus that scrapes a real agent and a real extender.

The agent shares simulated GPUs, and pods hold slices of them. Every query is one that Prometheus
understands, and has an answer where there is something to see.
"""

import http.client
import json
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.extender_nodes import NAMESPACE, cluster_of
from benchmarks.simulated_cluster.extender_process import running_extender
from support import ROOT
from support.control_plane import UNMARKED, free_port
from support.leftovers import MARK
from support.simulated_node import SimulatedNode
from support.waiting import wait_until

FILES = ROOT / "deploy/chart/files"
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in FILES.glob("dashboards/*.json")}
CONFIG = """version: v1
sharing:
  fractional:
    - {family: vgpu, devices: [0, 1], memoryUnit: 1Gi}
"""
RESOURCES = ["nvidia.com/vgpu-core", "nvidia.com/vgpu-memory", "nvidia.com/gpu"]
#: Of what nobody does here: binds, programs that run in the containers, alerts.
MAY_BE_EMPTY = (
    "vgpu_scheduler_binds_total", "vgpu_gpu_mode_seconds_total", "ALERTS",
    "vgpu_container_core_wanted_ratio",
)  # fmt: skip
VARIABLE = re.compile(r"\$(\w+)")


def queries(dashboard: dict[str, Any]) -> list[str]:
    """Returns all queries, for everything that could be chosen."""
    return [
        VARIABLE.sub(".*", target["expr"])
        for panel in dashboard["panels"]
        for target in panel["targets"]
    ]


class Prometheus:
    """A running one; `stop` it."""

    def __init__(self, folder: Path, targets: dict[str, int]) -> None:
        """Starts it.

        Args:
            targets: ports of 127.0.0.1, by job.
        """
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(FILES / "rules.yaml")],
            "scrape_configs": [
                {"job_name": job, "honor_labels": True, "static_configs": [
                    {"targets": [f"127.0.0.1:{port}"], "labels": {"node": "n1"}}]}
                for job, port in targets.items()
            ],
        }  # fmt: skip
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self.port = free_port()
        self._process = subprocess.Popen(
            ["prometheus", f"--config.file={folder / 'prometheus.yml'}",
             f"--storage.tsdb.path={folder / 'data'}",
             f"--web.listen-address=127.0.0.1:{self.port}"],
            env=UNMARKED, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def ask(self, query: str) -> list[Any]:
        """Returns the samples that answer a query now; none while it does not answer.

        Raises:
            AssertionError: Prometheus does not understand it.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        path = f"/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
            if response.status == HTTPStatus.SERVICE_UNAVAILABLE:  # it starts
                return []
            answer = json.loads(body)
        except OSError:
            return []
        finally:
            connection.close()
        assert answer["status"] == "success", answer
        return list(answer["data"]["result"])

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def prometheus() -> Iterator[Prometheus]:
    """One that has scraped an agent with two slices and an extender for some seconds."""
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not there; as root: sh deploy/dev/install-prerequisites.sh node")
    with tempfile.TemporaryDirectory(prefix="vgpu-") as name:
        base = Path(name)
        (base / "cluster").mkdir()
        # It serves all tests here, so no single test is to end it (`leftovers`).
        node = SimulatedNode(base, "t4*3", CONFIG, RESOURCES, variables={MARK: ""})
        try:
            for pod, core in (("train", 30), ("serve", 60)):
                node.admit(pod, vgpu_core=core, vgpu_memory=4)
            found = re.search(r"metrics=127\.0\.0\.1:(\d+)", node.log)
            assert found is not None, node.log
            with (
                cluster_of(base / "cluster", 2, 0.5, 1) as (server, _),
                running_extender(server, base / "cluster", NAMESPACE) as extender,
            ):
                targets = {"vgpu-agent": int(found[1]), "vgpu-scheduler": extender.port}
                running = Prometheus(base, targets)
                try:
                    extender.client().filter({"metadata": {"name": "p", "namespace": "d",
                                                           "uid": "u"}, "spec": {
                        "containers": [{"name": "c", "resources": {"limits": {
                            "nvidia.com/vgpu-core": "10"}}}]}}, ["n0000"])  # fmt: skip
                    wait_until(lambda: len(running.ask("up == 1")) == 2, "both are scraped")
                    yield running
                finally:
                    running.stop()
        finally:
            node.close()


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
    (memory,) = prometheus.ask("sum(vgpu_container_memory_limit_bytes)")
    assert float(memory["value"][1]) == 8 << 30
    (core,) = prometheus.ask("sum(vgpu_container_core_limit_ratio)")
    assert float(core["value"][1]) == pytest.approx(0.9)


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


def test_panels_are_of_known_units_and_have_titles() -> None:
    for dashboard in DASHBOARDS.values():
        titles = [panel["title"] for panel in dashboard["panels"]]
        assert len(titles) == len(set(titles))
        units = {panel["fieldConfig"]["defaults"]["unit"] for panel in dashboard["panels"]}
        assert units <= {"short", "bytes", "percentunit", "s", "ops"}
