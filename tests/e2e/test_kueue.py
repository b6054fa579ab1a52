"""The example for Kueue on a cluster with Kueue: who may begin, and with which slices.

Kueue is built from its module and installed by its own chart. That takes minutes the first time, so
`make check-long` has it and `make check` has not; there the definitions judge the example.
"""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import ROOT
from support.cluster import agent_image, control_plane, go_modules, kubernetes_versions
from support.cluster import logs as cluster_logs
from support.cluster.chart_on_cluster import RELEASE, allocatable
from support.cluster.go_programs import GoPrograms
from support.cluster.install import CHART
from support.cluster.pods import total_inside, uuid_inside
from support.cluster.real import RealCluster, running_cluster
from support.node import image as node_image
from support.node import parts as node_parts
from support.node.real import MARKS
from support.node.slices import GIB
from support.waiting import wait_until

RELEASES, MODULE = ROOT / "tests/e2e/releases", "sigs.k8s.io/kueue"
KUEUE = GoPrograms("kueue", "Kueue", (f"{MODULE}/cmd/kueue",), module=RELEASES, release=MODULE)
EXAMPLE = ROOT / "deploy/examples/scheduler/kueue"
IMAGE, TEAM = "docker.io/library/kueue:test", "team-a"
#: Four GPUs, as many as the queue's quota of compute is worth.
GPUS = ("a100-80g",) * 4
CONFIG = {"version": "v1", "sharing": {"fractional": [{"family": "vgpu", "memoryUnit": "1Gi"}]}}
#: Kueue makes its certificates first, and is told of them by a volume.
KUEUE_S = 180.0
CORE, MEMORY = "nvidia.com/vgpu-core", "nvidia.com/vgpu-memory"

pytestmark = [*MARKS, pytest.mark.long]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RealCluster]:
    """A cluster with the agent, Kueue and the example's queues."""
    why_not = (
        node_parts.missing() or control_plane.missing() or agent_image.missing() or KUEUE.missing()
    )
    if why_not:
        pytest.skip(why_not)
    program = KUEUE.build() / "kueue"
    with running_cluster(kubernetes_versions.build(), GPUS) as cluster:
        with cluster_logs.kept_on_failure(cluster, "install"):
            install(cluster, program)
        yield cluster


def install(cluster: RealCluster, program: Path) -> None:
    """Installs the agent, Kueue and the queues.

    Args:
        program: Kueue's.
    """
    archive = cluster.base / "kueue.tar"
    node_image.write_program(archive, IMAGE, "/manager", program, "65532:65532")
    cluster.import_image(archive)
    values = cluster.base / "values.yaml"
    values.write_text(yaml.safe_dump({"config": yaml.safe_dump(CONFIG)}))
    cluster.helm("install", RELEASE, str(CHART), f"--values={values}")
    wait_until(lambda: allocatable(cluster).get(CORE) == 400, "the node offers its GPUs")
    install_kueue(cluster)
    cluster.kubectl("create", "namespace", TEAM)
    # As soon as its webhooks answer.
    wait_until(
        lambda: cluster.ask("apply", "-f", str(EXAMPLE / "queues.yaml"))["status"] == 0,
        "Kueue takes the queues",
        KUEUE_S,
    )


def install_kueue(cluster: RealCluster) -> None:
    """Installs Kueue by its chart, with its defaults but for where its image is."""
    repository, _, tag = IMAGE.rpartition(":")
    image = "controllerManager.manager.image"
    cluster.helm(
        "install",
        "kueue",
        str(go_modules.folder_of(RELEASES, MODULE) / "charts/kueue"),
        "--namespace=kueue-system",
        "--create-namespace",
        f"--set={image}.repository={repository},{image}.tag={tag},{image}.pullPolicy=Never",
    )


def job(name: str) -> dict[str, Any]:
    """Returns the example's job by another name, its processors for a small node."""
    found = dict(yaml.safe_load((EXAMPLE / "job.yaml").read_text()))
    found["metadata"]["name"] = name
    (container,) = found["spec"]["template"]["spec"]["containers"]
    container["resources"]["requests"]["cpu"] = "20m"
    return found


def told(cluster: RealCluster, *arguments: str) -> dict[str, Any]:
    """Returns what kubectl gets, of kinds that Kueue brings."""
    return dict(json.loads(cluster.kubectl("get", *arguments, "-o", "json")))


def conditions(cluster: RealCluster, name: str) -> dict[str, tuple[str, str]]:
    """Returns what Kueue says of a job: status and message of each condition."""
    return {
        condition["type"]: (condition["status"], condition["message"])
        for workload in told(cluster, "workloads", f"--namespace={TEAM}")["items"]
        if workload["metadata"]["ownerReferences"][0]["name"] == name
        for condition in workload.get("status", {}).get("conditions", ())
    }


def is_admitted(cluster: RealCluster, name: str) -> bool:
    return conditions(cluster, name).get("Admitted", ("", ""))[0] == "True"


def running(cluster: RealCluster, name: str) -> list[str]:
    """Returns the job's pods that run."""
    pods = cluster.get("pods", namespace=TEAM, selector=f"job-name={name}")["items"]
    return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Running"]


def test_a_job_begins_with_slices_while_there_is_quota(cluster: RealCluster) -> None:
    cluster.kubectl("create", "-f", str(EXAMPLE / "job.yaml"), "--dry-run=server")  # as it stands
    for name in ("sweep", "second"):
        cluster.apply(job(name))
        wait_until(partial(is_admitted, cluster, name), f"{name} is admitted")
    wait_until(lambda: all(len(running(cluster, n)) == 4 for n in ("sweep", "second")), "all run")

    pods = running(cluster, "sweep") + running(cluster, "second")
    gpus = [uuid_inside(cluster, pod, TEAM) for pod in pods]
    assert {total_inside(cluster, pod, TEAM) for pod in pods} == {16 * GIB}
    assert all(gpus.count(gpu) == 2 for gpu in gpus)  # 40 + 40 of each
    (used,) = told(cluster, "clusterqueue", "gpus")["status"]["flavorsUsage"]
    assert {each["name"]: each["total"] for each in used["resources"]}.items() >= {
        (CORE, "320"),
        (MEMORY, "128"),
    }


def test_one_beyond_the_quota_waits_until_another_has_gone(cluster: RealCluster) -> None:
    cluster.apply(job("third"))

    def waits() -> bool:
        status, message = conditions(cluster, "third").get("QuotaReserved", ("", ""))
        return status == "False" and CORE in message

    wait_until(waits, "it waits for quota of compute")
    assert cluster.get("jobs", "third", TEAM)["spec"]["suspend"]
    assert not running(cluster, "third")

    cluster.kubectl("delete", "job", "sweep", f"--namespace={TEAM}")
    wait_until(lambda: is_admitted(cluster, "third"), "it is admitted")
    wait_until(lambda: len(running(cluster, "third")) == 4, "all of it runs")
    assert len(running(cluster, "second")) == 4
