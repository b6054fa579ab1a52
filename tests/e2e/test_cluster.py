"""The chart on a real cluster of one node: control plane, kubelet, containerd (`make e2e-node`).

What helm installs offers simulated GPUs, the extender is asked by the real scheduler, and pods run
with their slices whatever is changed, restarted, upgraded and taken away around them.

In the long form only, as root. One cluster serves all tests, in the order in which they stand. With
VGPU_OLDER (`make e2e`) all of it once more on a Kubernetes three minors older.
"""

import base64
import json
import os
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import yaml

from libvgpu.sim import Machine
from support import agent_image, control_plane, node_parts
from support.install import CHART
from support.node_slices import GIB, OUT_OF_MEMORY, asked
from support.real_cluster import RealCluster, newest, older, running_cluster
from support.real_node import EXAMPLES, MARKS, example
from support.waiting import wait_until

GPUS = ("a100-80g",) * 5
NAMESPACE, RELEASE = "vgpu-system", "vgpu"
WORKLOADS = EXAMPLES / "workloads"
#: Those that run all the time. The config below shares GPU 0 through MPS, 1 to 3 in time, and the
#: last one in replicas.
PODS = ("vgpu-30", "vgpu-70", "mps-half")
#: What the chart runs, in the image of `make image`.
PARTS = {"agent", "mps", "scheduler", "webhook"}
EXTENDER_ADDRESS = "10.96.0.44"  # as in deploy/examples/scheduler
#: How far a share of 3 s may be off on a machine that does other things; benchmarks measure it.
SHARE_POINTS = 5
#: Until the kubelet has told its pods of another ConfigMap, which it does once a second here.
CONFIG_MAP_S = 10.0
FALLEN_OFF_THE_BUS = 79
TOTAL_INSIDE = """
import pynvml
pynvml.nvmlInit()
print(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).total)
"""

pytestmark = MARKS


def config(*rules: dict[str, Any]) -> dict[str, Any]:
    """The examples' config, with more GPUs of family vgpu, and that of time-slicing."""
    found = dict(yaml.safe_load((EXAMPLES / "config.yaml").read_text()))
    for entry in found["sharing"]["fractional"]:
        if entry["family"] == "vgpu":
            entry["devices"] = [1, 2, 3]
    time_slicing = yaml.safe_load((WORKLOADS / "time-slicing/config.yaml").read_text())
    found["sharing"] |= time_slicing["sharing"]
    return found | {"limits": list(rules)}


def versions() -> list[str]:
    """Which versions of Kubernetes are asked for: the older one takes long to build."""
    return ["newest", "older"] if os.environ.get("VGPU_OLDER") else ["newest"]


@pytest.fixture(scope="module", params=versions())
def cluster(request: pytest.FixtureRequest) -> Iterator[RealCluster]:
    """A cluster on which the chart is installed, whose scheduler asks the extender."""
    why_not = node_parts.missing() or control_plane.missing() or agent_image.missing()
    if why_not:
        pytest.skip(why_not)
    kubernetes = {"newest": newest, "older": older}[request.param]()
    with running_cluster(kubernetes, GPUS) as cluster:
        values = cluster.base / "values.yaml"
        values.write_text(yaml.safe_dump({
            "config": yaml.safe_dump(config()),
            "scheduler": {"enabled": True, "replicas": 1, "clusterIP": EXTENDER_ADDRESS},
            "mutation": {"enabled": True, "mode": "webhook", "webhook": {"replicas": 1}},
        }))  # fmt: skip
        cluster.helm("install", RELEASE, str(CHART), f"--values={values}")
        wait_until(lambda: all_are_ready(cluster), "the chart's pods are ready")
        ask_the_extender(cluster)
        yield cluster


def all_are_ready(cluster: RealCluster) -> bool:
    """Returns whether all pods of the chart are there and ready."""
    pods = cluster.get("pods", f"--namespace={NAMESPACE}")["items"]
    parts = {pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in pods}
    return parts == PARTS and all(
        any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"]["conditions"])
        and not pod["metadata"].get("deletionTimestamp")
        for pod in pods
    )


def ask_the_extender(cluster: RealCluster) -> None:
    """Starts the scheduler again with the configuration of deploy/examples/scheduler."""
    secret = cluster.get("secret", f"{RELEASE}-scheduler-tls", f"--namespace={NAMESPACE}")
    authority = cluster.base / "extender-ca.crt"
    authority.write_bytes(base64.b64decode(secret["data"]["ca.crt"]))
    text = (EXAMPLES / "scheduler/kube-scheduler/scheduler-config.yaml").read_text()
    extenders = yaml.safe_load(text)["extenders"]
    for each in extenders:
        each["tlsConfig"]["caFile"] = str(authority)
    cluster.stop("kube-scheduler")
    cluster.start_scheduler({"extenders": extenders})


def allocatable(cluster: RealCluster) -> dict[str, int]:
    """Returns what the node offers of our resources."""
    node = cluster.get("node", "node")["status"]["allocatable"]
    return {name: int(n) for name, n in node.items() if name.startswith("nvidia.com/")}


def shape(name: str, core: int, memory: int, image: str = "vgpu-sample-client:0.1") -> Any:
    """Returns a pod that asks for a slice and does nothing."""
    limits = {"nvidia.com/vgpu-core": core, "nvidia.com/vgpu-memory": memory}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "c", "image": image, "imagePullPolicy": "Never",
                "command": ["python3", "-c", "import time; time.sleep(1000)"],
                "resources": {"limits": limits},
            }],
        },
    }  # fmt: skip


def phase(cluster: RealCluster, name: str) -> str:
    return str(cluster.get("pod", name)["status"]["phase"])


def runs(cluster: RealCluster, name: str) -> bool:
    return phase(cluster, name) == "Running"


def total_inside(cluster: RealCluster, name: str) -> int:
    """Returns the memory that NVML shows in a pod."""
    return int(cluster.kubectl("exec", name, "--", "python3", "-c", TOTAL_INSIDE))


def containers(cluster: RealCluster) -> dict[str, str]:
    """Returns the container of each example, which another start would change."""
    return {
        name: cluster.get("pod", name)["status"]["containerStatuses"][0]["containerID"]
        for name in PODS
    }


def assert_they_run_on(cluster: RealCluster, before: dict[str, str]) -> None:
    """The examples' containers are those of before, and still have their slices."""
    assert containers(cluster) == before
    for name in PODS:
        assert total_inside(cluster, name) == asked(example(name))[1]


def test_the_node_offers_what_its_gpus_hold(cluster: RealCluster) -> None:
    offered = {
        "nvidia.com/mps-core": 100, "nvidia.com/mps-memory": 80,
        "nvidia.com/gpu.shared": 4, "nvidia.com/vgpu-core": 300, "nvidia.com/vgpu-memory": 240,
    }  # fmt: skip
    wait_until(lambda: allocatable(cluster) == offered, "what the node offers")


def test_the_examples_run_together_with_their_slices(cluster: RealCluster) -> None:
    for name in PODS:
        cluster.apply(example(name))
    for name in PODS:
        percent, limit_bytes = asked(example(name))
        view, memory = cluster.wait_said(name, "view"), cluster.wait_said(name, "memory")
        assert view["cuda_total_bytes"] == view["nvml_total_bytes"] == limit_bytes
        assert memory["refusal_code"] == OUT_OF_MEMORY
        assert memory["one_again_after_free"]
        share = cluster.wait_said(name, "compute")["share_percent"]
        assert share == pytest.approx(percent, abs=SHARE_POINTS), name


def test_kubectl_vgpu_shows_the_pods_of_the_node(cluster: RealCluster) -> None:
    shown = cluster.vgpu("ps", "-o", "json")
    assert shown["status"] == 0, shown
    rows = {row["pod"]: row for row in json.loads(shown["out"])}
    assert {row["node"] for row in rows.values()} == {"node"}
    for name in PODS:
        assert rows[name]["memory_limit_bytes"] == asked(example(name))[1]
        assert rows[name]["state"] == "running"
    described = cluster.vgpu("describe", f"default/{PODS[0]}")
    assert described["status"] == 0 and "from request" in described["out"], described
    assert cluster.vgpu("doctor", "--problems")["status"] == 0


def test_pods_of_one_gpu_are_packed_there(cluster: RealCluster) -> None:
    """30 and 70 % fill one GPU, so the other one is whole."""
    assert {cluster.wait_said(name, "view")["uuid"] for name in ("vgpu-30", "vgpu-70")} == {
        cluster.machine.devices[1].uuid
    }


def test_what_no_single_gpu_has_stays_pending_with_the_reason(cluster: RealCluster) -> None:
    """By the sums of its units the node has room for it: 40 and 40 core of two GPUs."""
    for name in ("first", "also"):
        cluster.apply(shape(name, 60, 10))
        wait_until(partial(runs, cluster, name), f"{name} runs")
    cluster.apply(shape("waits", 70, 10))

    def said() -> list[str]:
        told = cluster.events("FailedScheduling")
        return [each for each in told if "40 core free of 70 asked" in each]

    wait_until(said, "the scheduler tells the extender's reason")
    assert phase(cluster, "waits") == "Pending"
    cluster.kubectl("delete", "pod", "first")
    wait_until(partial(runs, cluster, "waits"), "it runs once there is room")
    cluster.kubectl("delete", "pod", "also", "waits")


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
        ("inference/deployment.yaml", "deployment/inference", {"availableReplicas": 2}),
        ("notebook/notebook.yaml", "statefulset/notebook", {"availableReplicas": 1}),
        ("batch/job.yaml", "job/batch", {"succeeded": 4}),
        ("time-slicing/pod.yaml", "pod/time-sliced", {"phase": "Succeeded"}),
    ],
    ids=["inference", "notebook", "batch", "time-slicing"],
)
def test_workloads_of_every_kind_run(
    cluster: RealCluster, file: str, resource: str, state: dict[str, Any]
) -> None:
    objects = workload(file)
    cluster.apply(*objects)

    def is_so() -> bool:
        status = cluster.get(resource)["status"]
        return all(status.get(key) == value for key, value in state.items())

    try:
        wait_until(is_so, f"{resource} is {state}")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{cluster.kubectl('describe', 'pods')[-4000:]}") from None
    print(cluster.log(resource))
    for each in objects:
        cluster.kubectl("delete", each["kind"].lower(), each["metadata"]["name"])


@pytest.mark.parametrize(
    ("core", "why"), [(150, "150"), (0, "NVIDIA_VISIBLE_DEVICES")], ids=["amount", "variable"]
)
def test_policies_refuse_what_cannot_or_must_not_be(
    cluster: RealCluster, core: int, why: str
) -> None:
    pod = shape("refused", core or 10, 4)
    if not core:
        env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
        pod["spec"]["containers"][0]["env"] = env
    file = cluster.base / "refused.yaml"
    file.write_text(yaml.safe_dump(pod))
    assert why in cluster.kubectl("apply", "-f", str(file), status=1)


def test_the_webhook_adds_what_a_pod_lacks(cluster: RealCluster) -> None:
    file = cluster.base / "completed.yaml"
    file.write_text(yaml.safe_dump(shape("completed", 10, 4)))

    def tolerated() -> set[str]:
        told = cluster.kubectl("create", "--dry-run=server", "-f", str(file), "-o", "json")
        return {str(each.get("key")) for each in json.loads(told)["spec"]["tolerations"]}

    wait_until(lambda: "nvidia.com/gpu" in tolerated(), "the webhook's toleration")


def test_a_quota_counts_the_resources(cluster: RealCluster) -> None:
    cluster.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "small"}},
        {
            "apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": {"name": "gpus", "namespace": "small"},
            "spec": {"hard": {"requests.nvidia.com/vgpu-core": "20"}},
        },
    )  # fmt: skip
    wait_until(
        lambda: "hard" in cluster.get("quota", "gpus", "--namespace=small")["status"], "the quota"
    )
    file = cluster.base / "over.yaml"
    file.write_text(yaml.safe_dump(shape("over", 30, 4)))
    told = cluster.kubectl("apply", "--namespace=small", "-f", str(file), status=1)
    assert "exceeded quota: gpus" in told


def test_an_edit_of_the_config_map_holds_in_running_pods(cluster: RealCluster) -> None:
    before = containers(cluster)
    edit(cluster, config({"match": {"container": "*"}, "memory": "4Gi"}))
    began = time.monotonic()
    wait_until(lambda: total_inside(cluster, "vgpu-30") == 4 * GIB, "the new limit holds")
    took = time.monotonic() - began
    print(f"from kubectl apply to the running pod {took:.1f} s, of which our part is below 1 s")
    assert took < CONFIG_MAP_S
    assert total_inside(cluster, "mps-half") == 4 * GIB
    edit(cluster, config())
    wait_until(lambda: total_inside(cluster, "vgpu-30") == 16 * GIB, "the old limit holds again")
    wait_until(lambda: total_inside(cluster, "mps-half") == 8 * GIB, "also of the other family")
    assert_they_run_on(cluster, before)


def test_a_bad_edit_changes_nothing_and_raises_an_event(cluster: RealCluster) -> None:
    before = containers(cluster)
    edit(cluster, config({"match": {"container": "*"}, "memory": "much"}))
    (told, *_) = wait_until(lambda: cluster.events("ConfigRejected"), "an Event of the bad config")
    assert "much" in told
    assert_they_run_on(cluster, before)
    edit(cluster, config())


def edit(cluster: RealCluster, content: dict[str, Any]) -> None:
    """Puts another config into the chart's ConfigMap."""
    patch = json.dumps({"data": {"config.yaml": yaml.safe_dump(content)}})
    cluster.kubectl("patch", "configmap", "vgpu-config", f"--namespace={NAMESPACE}",
                    "--type=merge", f"--patch={patch}")  # fmt: skip


def test_pods_run_on_while_agent_and_kubelet_start_again(cluster: RealCluster) -> None:
    before = containers(cluster)
    cluster.kubectl("delete", "pod", f"--namespace={NAMESPACE}", "--force", "--grace-period=0",
                    "--selector=app.kubernetes.io/component=agent")  # fmt: skip
    cluster.kill("kubelet")
    cluster.start_kubelet()
    wait_until(lambda: all_are_ready(cluster), "the agent is ready again")
    wait_until(lambda: allocatable(cluster).get("nvidia.com/vgpu-core") == 300, "all is offered")
    assert_they_run_on(cluster, before)
    # Nothing is given twice: the GPU of both examples is full, so the next one goes to another.
    cluster.apply(shape("next", 10, 4))
    wait_until(partial(runs, cluster, "next"), "the next one runs")
    where = cluster.kubectl("exec", "next", "--", "python3", "-c", (
        "import pynvml; pynvml.nvmlInit(); "
        "print(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0)))"
    ))  # fmt: skip
    assert where.strip() in {each.uuid for each in cluster.machine.devices[2:]}
    cluster.kubectl("delete", "pod", "next")


def test_a_fault_withdraws_a_gpu_alone(cluster: RealCluster) -> None:
    machine = Machine.open(cluster.machine.directory)
    machine.raise_event(3, "xid", FALLEN_OFF_THE_BUS)
    wait_until(lambda: allocatable(cluster).get("nvidia.com/vgpu-core") == 200, "one is withdrawn")
    assert any("79" in each for each in cluster.events("GpuUnhealthy"))
    assert_they_run_on(cluster, containers(cluster))


def test_upgrade_and_rollback_leave_pods_alone(cluster: RealCluster) -> None:
    before = containers(cluster)
    cluster.helm("upgrade", RELEASE, str(CHART), "--reset-then-reuse-values",
                 "--set=agent.resources.limits.memory=300Mi")  # fmt: skip
    wait_until(lambda: agents_memory(cluster) == {"300Mi"}, "the new agent runs")
    wait_until(lambda: all_are_ready(cluster), "it is ready")
    assert_they_run_on(cluster, before)
    cluster.helm("rollback", RELEASE, "1")
    wait_until(lambda: agents_memory(cluster) == {"256Mi"}, "the old agent runs")
    wait_until(lambda: all_are_ready(cluster), "it is ready")
    assert_they_run_on(cluster, before)


def agents_memory(cluster: RealCluster) -> set[str]:
    pods = cluster.get("pods", f"--namespace={NAMESPACE}",
                       "--selector=app.kubernetes.io/component=agent")["items"]  # fmt: skip
    return {pod["spec"]["containers"][0]["resources"]["limits"]["memory"] for pod in pods}


def test_uninstall_takes_the_agent_away_and_leaves_running_pods_their_slices(
    cluster: RealCluster,
) -> None:
    before = containers(cluster)
    cluster.helm("upgrade", RELEASE, str(CHART), "--reset-then-reuse-values",
                 "--set=cleanHosts.enabled=true")  # fmt: skip
    cluster.helm("uninstall", RELEASE)
    wait_until(lambda: not cluster.get("pods", f"--namespace={NAMESPACE}")["items"], "no pod left")
    wait_until(lambda: not any(allocatable(cluster).values()), "nothing is offered any more")
    for name in ("vgpu-30", "vgpu-70"):
        assert total_inside(cluster, name) == asked(example(name))[1]
    assert containers(cluster)["vgpu-30"] == before["vgpu-30"]
    (told,) = cluster.events("HostNotCleaned")
    assert any(f"the pod default/{name} has a slice there" in told for name in PODS)
    cluster.kubectl("delete", "pod", *PODS)
    clean(cluster)
    assert_nothing_is_left(cluster)


def test_uninstall_removes_what_is_on_a_node_where_no_pod_has_a_slice(cluster: RealCluster) -> None:
    cluster.helm("install", RELEASE, str(CHART), f"--values={cluster.base / 'values.yaml'}",
                 "--set=cleanHosts.enabled=true")  # fmt: skip
    wait_until(lambda: all_are_ready(cluster), "the chart's pods are ready again")
    wait_until(lambda: allocatable(cluster).get("nvidia.com/vgpu-core"), "it offers its GPUs again")
    brief = shape("brief", 10, 4)
    brief["spec"]["nodeName"] = "node"  # the extender has another certificate now
    cluster.apply(brief)
    wait_until(partial(runs, cluster, "brief"), "a pod has a slice")
    # Marked for its end, it is waited for.
    cluster.kubectl("delete", "pod", "brief", "--wait=false")
    cluster.helm("uninstall", RELEASE)
    assert_nothing_is_left(cluster)
    assert len(cluster.events("HostNotCleaned")) == 1  # the one of before
    rights = names(cluster, "clusterroles") + names(cluster, "clusterrolebindings")
    assert not [name for name in rights if name.startswith(f"{RELEASE}-")]


def names(cluster: RealCluster, kind: str) -> list[str]:
    return [each["metadata"]["name"] for each in cluster.get(kind)["items"]]


def assert_nothing_is_left(cluster: RealCluster) -> None:
    assert not any(cluster.inside(each).exists() for each in ("/run/vgpu", "/var/lib/vgpu"))
    wait_until(lambda: NAMESPACE not in names(cluster, "namespaces"), "the namespace has gone")


def clean(cluster: RealCluster) -> None:
    """Does what docs/operations.md says for after the last container."""
    cluster.kubectl("delete", "lease", f"--namespace={NAMESPACE}",
                    "--selector=app.kubernetes.io/component=vgpu-inventory")  # fmt: skip
    for command in ("umount /run/vgpu", "rm -rf /run/vgpu /var/lib/vgpu"):
        done = cluster.run(*command.split())
        assert done["status"] == 0, done
