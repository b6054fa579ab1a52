"""deploy/examples/scheduler against the extender's own code: paths, resources, numbers."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deviceplugin.model.units import fraction_resources
from deviceplugin.scheduler.wire import server
from support import ROOT

EXAMPLES = ROOT / "deploy/examples/scheduler"


def documents(file: Path) -> Iterator[dict[str, Any]]:
    """Yields a file's documents, and those in its ConfigMaps."""
    for document in yaml.safe_load_all(file.read_text()):
        yield document
        if document["kind"] == "ConfigMap":
            for text in document["data"].values():
                yield from yaml.safe_load_all(text)


def extenders() -> dict[str, dict[str, Any]]:
    """Returns the extender of each of kube-scheduler's configurations, by its file."""
    found = {}
    for file in EXAMPLES.rglob("*.yaml"):
        for document in documents(file):
            if document.get("kind") == "KubeSchedulerConfiguration":
                (found[file.name],) = document["extenders"]
    return found


def test_kube_scheduler_asks_for_calls_that_there_are() -> None:
    found = extenders()

    assert len(found) == 2
    for name, extender in found.items():
        for verb in ("filter", "prioritize", "preempt", "bind"):
            path = "/" + extender[f"{verb}Verb"]
            assert server.CALLS[path] == verb, name
        # Paths are appended to the prefix, which has none of its own.
        assert re.fullmatch(r"https://[a-z0-9.-]+", extender["urlPrefix"]), name
        assert extender["nodeCacheCapable"], name
        assert extender["enableHTTPS"], name
        assert not extender["ignorable"], name
        assert "insecure" not in extender["tlsConfig"], name


def test_no_scheduler_elects_where_node_agents_write() -> None:
    elections = set()
    for file in EXAMPLES.rglob("*.yaml"):
        for document in documents(file):
            lock = document.get("leaderElection", {})
            elections.add(lock.get("resourceNamespace", ""))
            for rule in document.get("rules", ()):
                if "leases" in rule["resources"]:
                    elections.add(document["metadata"]["namespace"])

    assert elections == {"", "vgpu-system-election"}


def test_volcano_asks_for_calls_that_there_are() -> None:
    _, config = documents(EXAMPLES / "volcano/volcano-scheduler-configmap.yaml")
    (arguments,) = (
        plugin["arguments"]
        for tier in config["tiers"]
        for plugin in tier["plugins"]
        if plugin["name"] == "extender"
    )
    prefix = arguments["extender.urlPrefix"]
    verbs = {value for key, value in arguments.items() if key.endswith("Verb")}

    assert verbs == {"predicate", "prioritize"}
    assert prefix.endswith(server.VOLCANO)
    readme = (EXAMPLES / "volcano/README.md").read_text()
    verbs |= {w for w in ("preemptable", "reclaimable") if f"extender.{w}Verb" in readme}
    assert {f"{server.VOLCANO}/{verb}" for verb in verbs} == {
        path for path in server.CALLS if path.startswith(server.VOLCANO)
    }


def test_every_resource_of_ours_is_the_extenders_and_kube_schedulers() -> None:
    """Ignored ones are not counted by kube-scheduler, and missing ones not by the extender."""
    whole = {"nvidia.com/gpu", "nvidia.com/gpu.shared"}

    for name, extender in extenders().items():
        managed = extender["managedResources"]
        assert {each["name"] for each in managed} == {*fraction_resources("nvidia.com"), *whole}
        assert not any(each["ignoredByScheduler"] for each in managed), name


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_pages_that_the_chart_asks_for_are_there(path: str) -> None:
    chart = "".join(
        (ROOT / f"deploy/chart/templates/{name}.yaml").read_text()
        for name in ("scheduler", "pod-monitor")
    )

    assert f"path: {path}" in chart
    assert f'("GET", "{path}")' in inspect.getsource(server)


def test_quotas_name_the_four_resources() -> None:
    (quota,) = documents(EXAMPLES / "quota/resource-quota.yaml")
    _, cluster_queue, _ = documents(EXAMPLES / "kueue/queues.yaml")
    (group,) = cluster_queue["spec"]["resourceGroups"]
    ours = fraction_resources("nvidia.com")

    assert {name.removeprefix("requests.") for name in quota["spec"]["hard"]} >= set(ours)
    assert all(name.startswith("requests.") for name in quota["spec"]["hard"])
    assert set(group["coveredResources"]) == {"cpu", "memory", *ours}
    (flavor,) = group["flavors"]
    # Kueue refuses a flavor that lacks a covered resource, or has them in another order.
    assert [each["name"] for each in flavor["resources"]] == group["coveredResources"]


def test_what_the_readmes_expect_is_what_the_examples_ask() -> None:
    (gang,) = documents(EXAMPLES / "volcano/gang-job.yaml")
    (task,) = gang["spec"]["tasks"]
    (job,) = documents(EXAMPLES / "kueue/job.yaml")
    training, service = documents(EXAMPLES / "priority/pods.yaml")

    def core(spec: dict[str, Any]) -> int:
        (container,) = spec["containers"]
        return int(container["resources"]["limits"]["nvidia.com/vgpu-core"])

    assert gang["spec"]["minAvailable"] == task["replicas"] == 4
    assert core(task["template"]["spec"]) == 50  # two on each of two GPUs
    (queue,) = documents(EXAMPLES / "volcano/queue.yaml")
    assert gang["spec"]["queue"] == queue["metadata"]["name"]
    most = queue["spec"]["capability"]["nvidia.com/vgpu-core"]
    gangs = most / (task["replicas"] * core(task["template"]["spec"]))
    assert gangs == 2  # so the readme's third one waits
    used = job["spec"]["parallelism"] * core(job["spec"]["template"]["spec"])
    assert f"{used} of the 400" in (EXAMPLES / "kueue/README.md").read_text()
    both = f"({core(training['spec'])} + {core(service['spec'])})"
    assert both in (EXAMPLES / "priority/README.md").read_text()
    assert core(training["spec"]) + core(service["spec"]) > 100
