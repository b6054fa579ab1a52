"""Listing podresources at a kubelet that serves so many listings a second and refuses the rest."""

import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import pytest

from deviceplugin.kubelet import podresources
from deviceplugin.kubelet.podresources import PodResources
from deviceplugin.kubelet.protos import podresources_v1_pb2 as pb
from deviceplugin.model.allocations import Owner
from deviceplugin.policy.pairing.podresources_listing import Listed
from libvgpu.errors import VgpuError
from support.waiting import PATIENCE_S

ANSWER = pb.ListPodResourcesResponse()
_pod = ANSWER.pod_resources.add(name="pod", namespace="team")
_pod.containers.add(name="main").devices.add(
    resource_name="nvidia.com/vgpu-core", device_ids=["GPU-0::c0"]
)


class Server:
    """Refuses the first ``refusals`` listings, in the kubelet's words or others."""

    def __init__(self, folder: Path) -> None:
        self.kubelet_dir = folder
        self.refusals, self.words, self.asked = 0, "rejected by rate limit", 0
        self.answers = threading.Event()
        self.answers.set()

    def list(self, request: Any, context: Any) -> Any:
        self.asked += 1
        if self.asked <= self.refusals:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, self.words)
        self.answers.wait()
        return ANSWER


@contextmanager
def serving() -> Iterator[Server]:
    with TemporaryDirectory(prefix="vgpu-", dir="/tmp") as name:  # a socket's path is short
        (Path(name) / "pod-resources").mkdir()
        served = Server(Path(name))
        server = grpc.server(futures.ThreadPoolExecutor(1))
        handler = grpc.unary_unary_rpc_method_handler(
            served.list,
            pb.ListPodResourcesRequest.FromString,
            pb.ListPodResourcesResponse.SerializeToString,
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": handler}),)
        )
        server.add_insecure_port(f"unix:{name}/pod-resources/kubelet.sock")
        server.start()
        try:
            yield served
        finally:
            served.answers.set()
            server.stop(0).wait()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture(autouse=True)
def takes_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused is refused by the kubelet, not because this machine is slow."""
    monkeypatch.setattr(podresources, "_TIMEOUT_S", PATIENCE_S)


class TimeOfPauses:
    """A clock that only pauses move."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def resources(server: Server) -> Iterator[PodResources]:
    resources = PodResources(server.kubelet_dir, "nvidia.com")
    yield resources
    resources.close()


def test_the_kubelets_rate_limit_is_waited_for(server: Server, resources: PodResources) -> None:
    """A listing that is given up would let the half of a failed pod join the next one's."""
    server.refusals = 3

    assert resources.list() == [Listed(Owner("team", "pod", "main"), frozenset({"GPU-0::c0"}))]
    assert server.asked == 4


def test_it_is_not_waited_for_without_end(
    server: Server, resources: PodResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(podresources, "runtime", TimeOfPauses())
    monkeypatch.setattr(podresources, "_PAUSE_S", PATIENCE_S)
    monkeypatch.setattr(podresources, "_TIMEOUT_S", 3.5 * PATIENCE_S)
    server.refusals = 10_000

    with pytest.raises(VgpuError, match="rate limit"):
        resources.list()

    assert server.asked == 4


def test_a_last_try_that_comes_too_late_does_not_hide_the_limit(
    server: Server, resources: PodResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(podresources, "runtime", TimeOfPauses())
    monkeypatch.setattr(podresources, "_PAUSE_S", PATIENCE_S - 0.1)
    server.refusals = 1
    server.answers.clear()

    with pytest.raises(VgpuError, match="rate limit"):
        resources.list()


def test_what_no_waiting_helps_is_not_asked_again(server: Server, resources: PodResources) -> None:
    server.refusals, server.words = 1, "message larger than max"

    with pytest.raises(VgpuError, match="larger than max"):
        resources.list()

    assert server.asked == 1
