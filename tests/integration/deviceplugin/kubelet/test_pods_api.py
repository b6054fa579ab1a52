"""The kubelet's Pods API as the agent reads it, served by a stand-in over a real socket."""

import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest

from deviceplugin.core import pod_knowledge
from deviceplugin.kube.api_client import ApiServer
from deviceplugin.kubelet.pods_api import PodsApi
from deviceplugin.kubelet.protos import pods_v1alpha1_pb2 as pb
from deviceplugin.model.chosen_gpus import ChosenGpus
from deviceplugin.model.gpus import Gpu, GpuListing
from deviceplugin.model.pod_requests import ContainerKind, ContainerRequest
from deviceplugin.policy.pairing.bound_pods import BoundPods
from deviceplugin.testing import AdmittedPod
from support.node.in_process import GIB, InProcessNode, running_node
from support.waiting import PATIENCE_S
from vgpuctl.agent_client import agent_report

#: What Kubernetes' own v1.Pod of k8s.io/api 0.34.10 marshals itself to: with an init container, a
#: sidecar, two containers, labels, an image and what else is not read here.
MARSHALLED = bytes.fromhex(
    "0a84010a057765622d3012001a047465616d22002a057569642d31320135380042080880e2cfaa0610005a06"
    "0a016112016262450a146e76696469612e636f6d2f766770752e67707573122d7b226e6f6465223a226e3122"
    "2c22636f6e7461696e657273223a7b226d61696e223a5b224750552d31225d7d7d620c0a076f746865722f78"
    "12017912bf0312b9010a046d61696e1201691a01782a004298010a0d0a0363707512060a043530306d0a1c0a"
    "146e76696469612e636f6d2f766770752d636f726512040a0232300a1d0a166e76696469612e636f6d2f7667"
    "70752d6d656d6f727912030a0138120d0a0363707512060a043530306d121c0a146e76696469612e636f6d2f"
    "766770752d636f726512040a023230121d0a166e76696469612e636f6d2f766770752d6d656d6f727912030a"
    "01386a007200800100880100900100a20100121c0a0469646c6512002a0042006a0072008001008801009001"
    "00a201001a00320042004a0052026e315800600068008201008a01009a0100a201590a04696e69741201692a"
    "00423c0a1c0a146e76696469612e636f6d2f766770752d636f726512040a023130121c0a146e76696469612e"
    "636f6d2f766770752d636f726512040a0231306a007200800100880100900100a20100a201650a0473696465"
    "12002a0042400a1e0a166e76696469612e636f6d2f766770752d6d656d6f727912040a02326b121e0a166e76"
    "696469612e636f6d2f766770752d6d656d6f727912040a02326b6a007200800100880100900100a20100c201"
    "06416c77617973c20100c801071a240a0750656e64696e671a0022002a0032003a0808e4e2cfaa0610004a00"
    "5a007200880100"
)
GPUS = tuple(Gpu(i, f"GPU-{i}", "test", 80 * GIB) for i in range(8))
CONFIG = "version: v1\nsharing: {fractional: [{family: vgpu, memoryUnit: 1Gi}]}\n"
SMALL = {"vgpu-core": 10, "vgpu-memory": 8}


class PodsService:
    """Lists what it is told to.

    Attributes:
        pods: each as its bytes.
        answers: while it is cleared, no list is answered.
    """

    def __init__(self, socket: Path) -> None:
        self.pods: list[bytes] = []
        self.lists = 0
        self.answers = threading.Event()
        self.answers.set()
        socket.parent.mkdir(parents=True, exist_ok=True)
        self._server = grpc.server(futures.ThreadPoolExecutor(2))
        handler = grpc.unary_unary_rpc_method_handler(self._list)
        service = grpc.method_handlers_generic_handler("v1alpha1.Pods", {"ListPods": handler})
        self._server.add_generic_rpc_handlers((service,))
        self._server.add_insecure_port(f"unix:{socket}")
        self._server.start()

    def _list(self, request: bytes, context: Any) -> bytes:
        self.lists += 1
        self.answers.wait(PATIENCE_S)
        # A repeated field of bytes, as the kubelet sends it.
        return b"".join(b"\x0a" + _varint(len(each)) + each for each in self.pods)

    def stop(self) -> None:
        self.answers.set()
        self._server.stop(None).wait()


def _varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def is_listed(known: BoundPods) -> bool:
    return bool(known.names)


def test_a_pod_as_kubernetes_marshals_it(tmp_path: Path) -> None:
    api = PodsApi(tmp_path, "n1", "nvidia.com")
    assert not api.is_there
    assert not api.seen().is_current
    service = PodsService(api.socket)
    service.pods = [
        MARSHALLED,
        pb.Pod(metadata=pb.ObjectMeta(name="idle", namespace="x", uid="2")).SerializeToString(),
    ]
    try:
        assert api.seen().is_current
        assert api.seen().names == frozenset()
        known = api.wait(is_listed, PATIENCE_S)
    finally:
        service.stop()
        api.close()

    assert known.names == {("team", "web-0"), ("x", "idle")}
    (pod,) = known.pods
    assert (pod.uid, pod.node, pod.created_at) == ("uid-1", "n1", 1.7e9)
    assert pod.chosen == ChosenGpus("n1", {"main": ("GPU-1",)})
    assert (pod.is_acknowledged, pod.is_ended) == (True, False)
    core, memory = "nvidia.com/vgpu-core", "nvidia.com/vgpu-memory"
    assert pod.containers == (
        ContainerRequest("init", {core: 10}, ContainerKind.INIT),
        ContainerRequest("side", {memory: 2000}, ContainerKind.SIDECAR),
        ContainerRequest("main", {core: 20, memory: 8}),
    )


def test_a_kubelet_that_is_silent_or_talks_nonsense_costs_the_time_and_no_more(
    tmp_path: Path,
) -> None:
    api = PodsApi(tmp_path, "n1", "nvidia.com")
    service = PodsService(api.socket)
    service.pods = [MARSHALLED]
    try:
        assert api.wait(is_listed, PATIENCE_S).names
        service.answers.clear()
        assert api.wait(is_listed, 0.01).names, "what was listed last stays"
        assert "DEADLINE_EXCEEDED" in api.problem
        service.answers.set()
        service.pods = [b"\xff\xff\xff"]
        assert api.wait(is_listed, PATIENCE_S).names
        assert "does not answer" in api.problem
        service.pods = []
        assert not api.wait(is_listed, PATIENCE_S).names
        assert api.problem == ""
    finally:
        service.stop()
        api.close()


class Node:
    """A node without an API server, with a kubelet that has a Pods API."""

    def __init__(self, node: InProcessNode, service: PodsService) -> None:
        self.node, self.service = node, service

    def admit(self, name: str, limits: dict[str, int], gpu: str = "") -> AdmittedPod:
        chosen = ChosenGpus("test-node", {"c0": (gpu,)}).encoded() if gpu else ""
        quantities = {f"nvidia.com/{k}": pb.Quantity(string=str(n)) for k, n in limits.items()}
        pod = pb.Pod(
            metadata=pb.ObjectMeta(
                name=name,
                namespace="default",
                uid=name,
                annotations={"nvidia.com/vgpu.gpus": chosen},
            ),
            spec=pb.PodSpec(
                node_name="test-node",
                containers=[
                    pb.Container(name="c0", resources=pb.ResourceRequirements(limits=quantities))
                ],
            ),
        )
        self.service.pods.append(pod.SerializeToString())
        return self.node.admit(name, limits)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(ApiServer, "from_environment", lambda environ: None)
    made: list[PodsService] = []

    def make(base: Path) -> InProcessNode:
        node = InProcessNode(base, seed=3)
        node.inventory.found = GpuListing(GPUS)
        made.append(PodsService(node.kubelet_dir / "pods-api" / "pods-api.sock"))
        return node

    try:
        with running_node(monkeypatch, make, CONFIG) as running:
            yield Node(running, made[0])
    finally:
        for each in made:
            each.stop()


def gpus_of(*pods: AdmittedPod) -> set[str]:
    units = (u for pod in pods for c in pod.containers for each in c.devices.values() for u in each)
    return {unit.partition("::")[0] for unit in units}


def test_pods_are_packed_and_choices_honoured_without_an_api_server(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_knowledge, "PATIENCE_S", PATIENCE_S)  # however busy the machine is
    assert agent_report(node.node.run_dir).pods_problem == ""
    before = node.service.lists
    pods = [node.admit(f"p{i}", SMALL) for i in range(8)]
    lists = node.service.lists - before

    assert gpus_of(*pods) == {"GPU-0"}
    assert lists == 8, "once for each pod"
    assert gpus_of(node.admit("chosen", SMALL, "GPU-5")) == {"GPU-5"}
