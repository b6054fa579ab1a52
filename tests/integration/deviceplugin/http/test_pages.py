"""The pages of a running agent: whether it is ready, its metrics, its slices, and its socket."""

import stat
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as read_openmetrics,
)

from deviceplugin.http.metric_names import METRICS
from deviceplugin.pages.slices import read_page
from libvgpu import artifacts
from support.node.in_process import RESOURCES, InProcessNode, running_node
from support.ports import held_port
from support.waiting import PATIENCE_S, wait_until
from vgpuctl import agent_client


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessNode]:
    with running_node(monkeypatch) as node:
        node.stop_agent()
        node.metrics_address = f"127.0.0.1:{held_port()}"
        node.pages_address = f"127.0.0.1:{held_port()}"
        node.start_agent()
        node.wait_registered()
        yield node


def page(node: InProcessNode, path: str, address: str = "") -> tuple[int, str]:
    where = f"http://{address or node.metrics_address}{path}"
    try:
        with urllib.request.urlopen(where, timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_it_is_ready_only_while_the_kubelet_has_every_resource(node: InProcessNode) -> None:
    wait_until(lambda: page(node, "/readyz") == (200, "ok\n"))
    assert page(node, "/healthz") == (200, "ok\n")

    node.kubelet.stop()

    wait_until(lambda: page(node, "/readyz")[0] == 503)
    text = page(node, "/readyz")[1]
    assert all(resource in text for resource in RESOURCES)
    assert page(node, "/healthz")[0] == 200
    assert (
        'vgpu_resource_registered{resource="nvidia.com/mps-core"} 0.0' in page(node, "/metrics")[1]
    )
    node.kubelet.start()
    node.wait_registered()
    wait_until(lambda: page(node, "/readyz")[0] == 200)


def test_a_scrape_gets_every_metric_and_other_pages_are_named(node: InProcessNode) -> None:
    asked = urllib.request.Request(
        f"http://{node.metrics_address}/metrics",
        headers={"Accept": "application/openmetrics-text; version=1.0.0, text/plain;q=0.5"},
    )
    # A page of our own agent.
    with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:  # noqa: S310
        kind = answer.headers["Content-Type"]
        text = answer.read().decode()
    found = read_openmetrics(text)  # type: ignore[no-untyped-call]
    families = {f.name for f in found}
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    assert families == {metric.name.removesuffix("_total") for metric in METRICS}
    assert page(node, "/metrics")[1].startswith("# HELP vgpu_")
    assert page(node, "/")[0] == 404


def test_slices_can_be_read_at_their_own_address_and_not_changed(node: InProcessNode) -> None:
    node.limit(node.admit("train", {"vgpu-core": 30, "vgpu-memory": 4}))
    inside = node.pages_address

    (found,) = read_page(page(node, "/v1/slices", inside)[1].encode()).slices

    assert found.limits is not None and found.limits.devices[0].core_percent == 30
    assert page(node, "/v1/state", inside)[0] == page(node, "/v1/events", inside)[0] == 200
    assert page(node, f"/v1/allocations/{found.meta.allocation_id}/override", inside)[0] == 404


@pytest.mark.parametrize("path", ["/v1/slices", "/v1/state", "/v1/events"])
def test_who_reaches_the_metrics_is_not_told_of_tenants_by_the_pages(
    node: InProcessNode, path: str
) -> None:
    node.limit(node.admit("train", {"vgpu-core": 30, "vgpu-memory": 4}))
    status, said = page(node, path)
    assert (status, "train" in said) == (410, False)
    assert "use the kubectl-vgpu of the agent's version" in said


def test_the_socket_is_roots_alone_and_goes_with_the_agent(node: InProcessNode) -> None:
    path = node.run_dir / "agent.sock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    report = agent_client.agent_report(node.run_dir)
    assert report.agent.node == "test-node"
    assert {r.name for r in report.resources} == set(RESOURCES)
    assert report.shim_build == artifacts.build_id(artifacts.shim_path())

    node.stop_agent()

    assert not path.exists()
    node.start_agent()
    node.wait_registered()


def test_a_stream_that_the_kubelet_ended_is_opened_again_and_readiness_says_so_meanwhile(
    node: InProcessNode,
) -> None:
    core = RESOURCES[0]
    wait_until(lambda: page(node, "/readyz")[0] == 200)
    node.kubelet.listen(False)

    node.kubelet.end_stream(core)

    unheard = f"registered, but the kubelet does not listen: {core}\n"
    wait_until(lambda: page(node, "/readyz") == (503, unheard))
    assert page(node, "/healthz")[0] == 200
    assert agent_client.agent_report(node.run_dir).unheard_resources == (core,)
    assert f'vgpu_resource_registered{{resource="{core}"}} 0.0' in page(node, "/metrics")[1]

    node.kubelet.listen(True)
    wait_until(lambda: page(node, "/readyz")[0] == 200)
    assert node.kubelet.allocatable()[core] == 100
