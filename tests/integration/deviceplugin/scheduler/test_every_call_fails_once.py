"""Each I/O call of a bind fails once: the API server is named, and nothing is promised twice."""

import json
from pathlib import Path

import pytest

from benchmarks.simulated_cluster.kinds import POD
from deviceplugin.scheduler.binding.binder import Binder, BindFailed
from deviceplugin.scheduler.cluster.cluster import Cluster
from support.api_server.cluster_server import ClusterServer
from support.scheduler.values import DOMAIN, first_fit, pod_of, published
from support.world.one_failure import ERRORS, OneFailure, places

KEY = f"{DOMAIN}/vgpu.gpus"


class Bound:
    """A binder that was just begun, and one pod."""

    def __init__(self, server: ClusterServer, number: int) -> None:
        self.api, self.name = server.api(), f"p{number}"
        self.cluster = Cluster(first_fit)
        self.cluster.set_nodes({"n1": published(node="n1")})
        self.binder = Binder(self.api, self.cluster, first_fit, DOMAIN, str)
        server.put_pod(pod_of(self.name, 60, 10))

    def bind(self) -> str:
        """Returns why it is not bound, or perhaps not; empty where it is."""
        try:
            self.binder.bind("team", self.name, f"uid-{self.name}", "n1")
        except BindFailed as error:
            return error.message
        return ""


@pytest.mark.timeout(1200)
def test_a_bind_can_be_tried_again_and_promises_once(
    server: ClusterServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.publish("n1")
    failure = OneFailure(monkeypatch, tmp_path)
    made = failed = 0
    for made in range(2):  # the first imports modules, too
        failure.arm()
        assert not Bound(server, made).bind()
        failure.disarm()
    ways = [(call, error) for call in places(failure.calls) for error in ERRORS]
    assert {"connect", "send", "recv"} <= {call.what for call, _ in ways}
    for call, error in ways:
        made += 1
        bound = Bound(server, made)
        failure.arm(call, error)
        said = bound.bind()
        failure.disarm()
        failed += failure.failed is not None  # an answer may come in other pieces
        assert not said or bound.api.where in said or call.is_named_by(said), f"{call}: {said}"
        assert not bound.bind(), call
        pod = server.store.get(POD, "team", bound.name).content
        assert json.loads(pod["metadata"]["annotations"][KEY])["node"] == "n1"
        view = bound.cluster.view("n1")
        assert view is not None and sum(each.core for each in view[1].gpus) == 200 - 60, call
    assert failed > 0.9 * len(ways)
