"""A real kube-scheduler, with the extender, places pods on nodes of simulated GPUs.

etcd, kube-apiserver and kube-scheduler are the real ones; extender and node agents are processes as
the chart starts them, with the rights that the chart gives them; each node's kubelet is the
stand-in, which admits what is bound to it. In the long form only: with nothing cached API server
and scheduler take 5 minutes of two cores to build.
"""

import json
import random
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import ROOT
from support.cluster import control_plane, install, kubernetes_versions
from support.cluster.control_plane import ControlPlane, collection
from support.cluster.go_programs import BUILD_TIMEOUT_S, DOWNLOAD_TIMEOUT_S
from support.cluster.node import ClusterNode
from support.ports import held_port
from support.waiting import PATIENCE_S, wait_until

NAMESPACE = "vgpu-system"
CONFIG = """\
version: v1
sharing:
  fractional:
    - {family: vgpu, memoryUnit: 1Gi}
"""
FRACTIONS = ["nvidia.com/vgpu-core", "nvidia.com/vgpu-memory"]
#: Nodes with their GPUs: an A100 has 80 memory units, a T4 has 15.
NODES = {"large": "a100-80g*4", "small": "t4*2", "whole": "a100-80g*2"}
KEY = "nvidia.com/vgpu.gpus"
#: Secrets of the chart: the extender's certificate, and the one that schedulers show.
TLS, CLIENT = "vgpu-scheduler-tls", "vgpu-scheduler-client-tls"
_TESTS_S = 240.0

pytestmark = [
    pytest.mark.network,
    pytest.mark.timeout(DOWNLOAD_TIMEOUT_S + BUILD_TIMEOUT_S + _TESTS_S),
]


class Cluster:
    """Everything together."""

    def __init__(self, base: Path) -> None:
        self.plane = ControlPlane(base / "plane", kubernetes_versions.build().programs)
        self.plane.base.mkdir()
        self.base = base
        self._account = self.plane.account(NAMESPACE, "vgpu-scheduler")
        self.nodes: dict[str, ClusterNode] = {}
        self._extender: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.plane.start()
        for manifest in yaml.safe_load_all(install.render("--set", "scheduler.enabled=true")):
            if manifest is not None:
                self.plane.apply(collection(manifest, NAMESPACE), manifest)
                if manifest["kind"] == "Secret":
                    install.write_secret(manifest, self.base / manifest["metadata"]["name"])
        self.port, self.pages = held_port(), held_port()
        self.start_extender()
        for number, (name, spec) in enumerate(NODES.items()):
            directory = self.base / str(number)
            directory.mkdir()
            config, resources = (CONFIG, FRACTIONS)
            if name == "whole":
                config, resources = "version: v1\n", ["nvidia.com/gpu"]
            account = self.plane.agents_account(NAMESPACE, "vgpu-agent", name)
            self.nodes[name] = ClusterNode(
                self.plane, account, directory, name, spec, config, resources
            )
        self.plane.start_scheduler(self._scheduler_config())

    def start_extender(self) -> None:
        """Starts it, and waits until it knows the cluster."""
        (self.base / "config.yaml").write_text(CONFIG)
        with open(self.base / "extender.log", "ab") as log:
            self._extender = subprocess.Popen(
                [sys.executable, "-m", "deviceplugin.scheduler",
                 f"--service-account={self._account}", f"--address=127.0.0.1:{self.port}",
                 f"--probe-address=127.0.0.1:{self.pages}", f"--tls-dir={self.base / TLS}",
                 f"--client-ca={self.base / CLIENT / 'ca.crt'}",
                 f"--namespace={NAMESPACE}", "--election-namespace=vgpu-system-election",
                 f"--config={self.base / 'config.yaml'}"],
                env=self.plane.environment() | {"PYTHONPATH": str(ROOT)},
                cwd=ROOT, stderr=log,
            )  # fmt: skip
        wait_until(lambda: self.page("readyz"), "the extender is ready")

    def page(self, name: str) -> str:
        """Returns a page of the extender, empty where it does not answer well."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.pages}/{name}", timeout=5) as page:
                return str(page.read().decode())
        except OSError:
            return ""

    def stop(self) -> None:
        for node in self.nodes.values():
            node.stop()
        self.stop_extender()
        self.plane.stop()

    def stop_extender(self) -> None:
        if self._extender is not None:
            self._extender.terminate()
            self._extender.wait(PATIENCE_S)

    def _scheduler_config(self) -> dict[str, Any]:
        """Returns the example's, with this extender's address and certificates."""
        file = ROOT / "deploy/examples/scheduler/kube-scheduler/scheduler-config.yaml"
        config = dict(yaml.safe_load(file.read_text()))
        (extender,) = config["extenders"]
        extender["urlPrefix"] = f"https://127.0.0.1:{self.port}"
        extender["tlsConfig"] |= {
            "caFile": str(self.base / TLS / "ca.crt"),
            "certFile": str(self.base / CLIENT / "tls.crt"),
            "keyFile": str(self.base / CLIENT / "tls.key"),
        }
        return config

    def create(self, name: str, *containers: dict[str, int], **spec: Any) -> None:
        """Makes a pod; ``_`` in a resource's name stands for ``-``."""
        annotations = spec.pop("annotations", {})
        asking = [
            {
                "name": f"c{number}",
                "image": "client",
                "resources": {
                    "limits": {
                        f"nvidia.com/{key.replace('_', '-')}": str(value)
                        for key, value in limits.items()
                    }
                },
            }
            for number, limits in enumerate(containers)
        ]
        self.plane.apply(
            "/api/v1/namespaces/default/pods",
            {
                "metadata": {"name": name, "annotations": annotations},
                "spec": {"containers": asking, **spec},
            },
        )

    def pod(self, name: str) -> dict[str, Any]:
        found = self.plane.find(f"/api/v1/namespaces/default/pods/{name}")
        assert found is not None, f"there is no pod {name}"
        return found

    def delete(self, *names: str) -> None:
        for name in names:
            self.plane.delete(f"/api/v1/namespaces/default/pods/{name}", gracePeriodSeconds=1)
        for name in names:
            wait_until(partial(self._is_gone, name), f"pod {name} is gone")

    def _is_gone(self, name: str) -> bool:
        return self.plane.find(f"/api/v1/namespaces/default/pods/{name}") is None

    def running(self, name: str) -> dict[str, Any]:
        """Waits until a pod runs, and returns it."""

        def look() -> dict[str, Any] | None:
            pod = self.pod(name)
            assert pod["status"]["phase"] != "Failed", pod["status"]
            return pod if pod["status"]["phase"] == "Running" else None

        try:
            return wait_until(look, f"pod {name} runs")
        except AssertionError as error:
            log = (self.base / "extender.log").read_text()[-3000:]
            raise AssertionError(f"{error}\n{self.plane.last_words()}\n{log}") from None

    def gpus_of(self, name: str) -> list[list[str]]:
        """Returns the GPUs that each container of a running pod was told of."""
        pod = self.running(name)
        node = self.nodes[pod["spec"]["nodeName"]]
        return [node.placed[name, each["name"]] for each in pod["spec"]["containers"]]

    def why_pending(self, name: str) -> str:
        """Waits until the scheduler says why a pod fits nowhere, and returns it."""

        def look() -> str:
            conditions = self.pod(name).get("status", {}).get("conditions", [])
            return next(
                (str(c["message"]) for c in conditions if c.get("reason") == "Unschedulable"), ""
            )

        return wait_until(look, f"pod {name} fits nowhere")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    why_not = control_plane.missing() or install.missing()
    if why_not:
        pytest.skip(why_not)
    with tempfile.TemporaryDirectory(prefix="vgpu-", dir="/tmp") as name:
        cluster = Cluster(Path(name))
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()


@pytest.fixture(autouse=True)
def empty(cluster: Cluster) -> Iterator[None]:
    """No pod stays behind a test, and no agent refused one in it."""
    yield
    found = cluster.plane.find("/api/v1/namespaces/default/pods")
    assert found is not None
    cluster.delete(*(pod["metadata"]["name"] for pod in found["items"]))
    assert [each for node in cluster.nodes.values() for each in node.refusals] == []


def test_small_pods_share_one_gpu_and_leave_the_others_whole(cluster: Cluster) -> None:
    """Five of 16 units are all of an A100's memory, and none fits a T4."""
    names = [f"small-{number}" for number in range(5)]
    for name in names:
        cluster.create(name, {"vgpu_core": 10, "vgpu_memory": 16})
    assert len({tuple(cluster.gpus_of(name)[0]) for name in names}) == 1


def test_the_pod_says_which_gpus_were_chosen_and_gets_them(cluster: Cluster) -> None:
    cluster.create("pair", {"vgpu_core": 60, "vgpu_memory": 10}, {"vgpu_core": 70})
    gpus = cluster.gpus_of("pair")
    pod = cluster.running("pair")
    chosen = json.loads(pod["metadata"]["annotations"][KEY])
    assert chosen == {
        "node": pod["spec"]["nodeName"],
        "containers": {"c0": gpus[0], "c1": gpus[1]},
    }
    assert gpus[0] != gpus[1]


def test_what_fits_no_single_gpu_waits_and_says_why(cluster: Cluster) -> None:
    for number in range(6):
        cluster.create(f"part-{number}", {"vgpu_core": 60, "vgpu_memory": 10})
    for number in range(6):
        cluster.running(f"part-{number}")
    cluster.create("late", {"vgpu_core": 60, "vgpu_memory": 10})
    reason = cluster.why_pending("late")
    assert "40" in reason and "60" in reason, reason
    cluster.delete("part-3")
    cluster.running("late")


def test_whole_gpus_go_by_the_count_of_devices(cluster: Cluster) -> None:
    cluster.create("one", {"gpu": 1})
    cluster.create("two", {"gpu": 1})
    assert cluster.gpus_of("one") != cluster.gpus_of("two")
    assert cluster.pod("one")["spec"]["nodeName"] == "whole"


def test_a_pod_gets_the_model_that_it_asks_for(cluster: Cluster) -> None:
    cluster.create(
        "picky",
        {"vgpu_core": 10, "vgpu_memory": 2},
        annotations={"nvidia.com/vgpu.use-gpu-models": "t4"},
    )
    assert cluster.running("picky")["spec"]["nodeName"] == "small"


def test_a_more_important_pod_ends_only_those_whose_gpu_it_then_gets(cluster: Cluster) -> None:
    cluster.plane.apply(
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {"metadata": {"name": "important"}, "value": 1000},
    )
    names = [f"low-{number}" for number in range(6)]
    for name in names:
        cluster.create(name, {"vgpu_core": 90, "vgpu_memory": 10})
    before = {name: cluster.gpus_of(name)[0] for name in names}
    cluster.create("high", {"vgpu_core": 80, "vgpu_memory": 40}, priorityClassName="important")
    (mine,) = cluster.gpus_of("high")
    left = {pod["metadata"]["name"] for pod in cluster.plane.find("/api/v1/pods")["items"]}  # type: ignore[index]
    assert [name for name in names if name not in left] == [
        name for name, gpus in before.items() if gpus == mine
    ]


def test_an_extender_that_was_restarted_knows_what_is_taken(cluster: Cluster) -> None:
    for number in range(4):
        cluster.create(f"whole-{number}", {"vgpu_core": 100, "vgpu_memory": 40})
    taken = [cluster.gpus_of(f"whole-{number}")[0] for number in range(4)]
    cluster.stop_extender()
    cluster.start_extender()
    cluster.create("after", {"vgpu_core": 10, "vgpu_memory": 2})
    assert cluster.gpus_of("after")[0] not in taken


def test_arrivals_at_random_are_never_refused_by_a_node(cluster: Cluster) -> None:
    order = random.Random(27)
    alive: list[str] = []
    for number in range(60):
        name = f"random-{number}"
        core = order.choice([5, 10, 20, 30, 50, 100])
        limits = {"vgpu_core": core, "vgpu_memory": order.choice([1, 2, 4, 8, 12])}
        if order.random() < 0.2:
            del limits["vgpu_memory"]
        cluster.create(name, *[limits] * order.choice([1, 1, 1, 2]))
        alive.append(name)
        if order.random() < 0.4:
            cluster.delete(alive.pop(order.randrange(len(alive))))
    for name in alive:
        phase = cluster.pod(name)["status"]["phase"]
        assert phase in ("Pending", "Running"), cluster.pod(name)["status"]
    assert any(cluster.pod(name)["status"]["phase"] == "Running" for name in alive)


def test_the_policy_refuses_what_can_never_run(cluster: Cluster) -> None:
    with pytest.raises(AssertionError, match=r"whole GPUs|multiple|150"):
        cluster.create("never", {"vgpu_core": 150, "vgpu_memory": 10})
