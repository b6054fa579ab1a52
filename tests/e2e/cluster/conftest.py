"""The cluster that all files of this folder share, and their order."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from support.cluster import agent_image, control_plane, kubernetes_versions
from support.cluster import logs as cluster_logs
from support.cluster.chart_on_cluster import GPUS, PODS, install
from support.cluster.pods import runs
from support.cluster.real import RealCluster, running_cluster
from support.node import parts as node_parts
from support.node.real import example
from support.waiting import wait_until

#: What the examples say when they start is of the first config; the last file takes the chart away.
FIRST, LAST = "test_examples.py", "test_upgrade.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts this folder's first and last file where they belong; all others depend on no order."""
    places = [
        place for place, item in enumerate(items) if item.path.parent == Path(__file__).parent
    ]
    ours = sorted(
        (items[p] for p in places), key=lambda i: (i.path.name != FIRST, i.path.name == LAST)
    )
    for place, item in zip(places, ours, strict=True):
        items[place] = item


@pytest.fixture(scope="package", params=kubernetes_versions.asked_for())
def cluster(request: pytest.FixtureRequest) -> Iterator[RealCluster]:
    """A cluster with the chart and the examples' pods, whose scheduler asks the extender."""
    why_not = node_parts.missing() or control_plane.missing() or agent_image.missing()
    if why_not:
        pytest.skip(why_not)
    with running_cluster(kubernetes_versions.build(request.param), GPUS) as cluster:
        with cluster_logs.kept_on_failure(cluster, "install"):
            install(cluster)
            for name in PODS:
                cluster.apply(example(name))
            for name in PODS:
                wait_until(partial(runs, cluster, name), f"{name} runs")
        yield cluster
