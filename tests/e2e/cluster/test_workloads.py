"""The workloads of deploy/examples: a Deployment, a StatefulSet, a Job, a time-sliced pod."""

from typing import Any

import pytest
import yaml

from support.cluster.chart_on_cluster import WORKLOADS
from support.cluster.real import RealCluster
from support.node.real import MARKS
from support.waiting import wait_until

pytestmark = MARKS


def workload(name: str) -> list[dict[str, Any]]:
    """Returns the objects of an example; what runs in them is the sample client."""
    found = list(yaml.safe_load_all((WORKLOADS / name).read_text()))
    for each in found:
        spec = each["spec"]
        pod = spec if each["kind"] == "Pod" else spec.get("template", {}).get("spec")
        for container in pod["containers"] if pod else ():
            if not container["image"].startswith("vgpu-sample-client"):
                container |= {"image": "vgpu-sample-client:0.1", "imagePullPolicy": "Never",
                              "command": ["python3", "/app/client.py"]}  # fmt: skip
    return found


@pytest.mark.parametrize(
    ("file", "resource", "state"),
    [
        ("inference/deployment.yaml", "deployments/inference", {"availableReplicas": 2}),
        ("notebook/notebook.yaml", "statefulsets/notebook", {"availableReplicas": 1}),
        ("batch/job.yaml", "jobs/batch", {"succeeded": 4}),
        ("time-slicing/pod.yaml", "pods/time-sliced", {"phase": "Succeeded"}),
    ],
    ids=["inference", "notebook", "batch", "time-slicing"],
)
def test_workloads_of_every_kind_run(
    cluster: RealCluster, file: str, resource: str, state: dict[str, Any]
) -> None:
    objects = workload(file)
    cluster.apply(*objects)

    def is_so() -> bool:
        status = cluster.get(*resource.split("/"))["status"]
        return all(status.get(key) == value for key, value in state.items())

    try:
        wait_until(is_so, f"{resource} is {state}")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{cluster.kubectl('describe', 'pods')[-4000:]}") from None
    print(cluster.log(resource))
    for each in objects:
        cluster.kubectl("delete", each["kind"].lower(), each["metadata"]["name"])
