"""The pages and the doctor of a running agent: ready, healthy, and what is wrong."""

import json
import socket
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as read_openmetrics,
)

from deviceplugin.http import server
from deviceplugin.http.metric_names import METRICS
from libvgpu import artifacts
from support.node.in_process import CONFIG, RESOURCES, InProcessNode, running_node
from support.ports import held_port
from support.waiting import PATIENCE_S, wait_until
from vgpuctl import agent_client
from vgpuctl.__main__ import main
from vgpuctl.doctor import mps_strangers


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessNode]:
    # MPS daemons of other tests are strangers here, and a finding of their own.
    monkeypatch.setattr(mps_strangers, "pids", lambda proc: [])
    with running_node(monkeypatch) as node:
        node.stop_agent()
        node.metrics_address = f"127.0.0.1:{held_port()}"
        node.start_agent()
        node.wait_registered()
        yield node


def page(node: InProcessNode, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(
            f"http://{node.metrics_address}{path}", timeout=PATIENCE_S
        ) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def doctor(
    node: InProcessNode, capsys: pytest.CaptureFixture[str]
) -> tuple[int, dict[str, dict[str, str]]]:
    capsys.readouterr()
    status = main(
        [
            "doctor",
            "-o",
            "json",
            f"--run-dir={node.run_dir}",
            f"--state-dir={node.state_dir}",
            f"--kubelet-dir={node.kubelet_dir}",
        ]
    )
    return status, {f["check"]: f for f in json.loads(capsys.readouterr().out)}


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
    with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
        kind = answer.headers["Content-Type"]
        text = answer.read().decode()
    found = read_openmetrics(text)  # type: ignore[no-untyped-call]
    families = {f.name for f in found}
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    assert families == {metric.name.removesuffix("_total") for metric in METRICS}
    assert page(node, "/metrics")[1].startswith("# HELP vgpu_")
    assert page(node, "/")[0] == 404


def test_many_scrapers_that_never_finish_keep_no_probe_waiting(
    node: InProcessNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    # None is dropped for being slow, so who waits for that waits longer than any test.
    monkeypatch.setattr(server, "REQUEST_TIMEOUT_S", 10 * PATIENCE_S)
    node.stop_agent()
    node.start_agent()
    node.wait_registered()
    host, port = node.metrics_address.rsplit(":", 1)
    idle = [socket.create_connection((host, int(port)), timeout=PATIENCE_S) for _ in range(200)]
    try:
        assert page(node, "/healthz")[0] == 200
    finally:
        for each in idle:
            each.close()


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
    assert agent_client.agent_report(node.run_dir).unheard_resources == [core]
    assert f'vgpu_resource_registered{{resource="{core}"}} 0.0' in page(node, "/metrics")[1]

    node.kubelet.listen(True)
    wait_until(lambda: page(node, "/readyz")[0] == 200)
    assert node.kubelet.allocatable()[core] == 100


def test_the_doctor_of_a_healthy_node_and_of_one_with_a_bad_config_and_no_kubelet(
    node: InProcessNode, capsys: pytest.CaptureFixture[str]
) -> None:
    wait_until(
        lambda: all(r.registered_at for r in agent_client.agent_report(node.run_dir).resources)
    )
    _, healthy = doctor(node, capsys)
    checks = ("kubelet", "podresources", "agent", "config", "resources", "shim", "mps")
    assert {c: healthy[c]["level"] for c in checks} == dict.fromkeys(checks, "ok")
    # There is neither driver nor NVML here.
    assert {c for c, f in healthy.items() if f["level"] == "fail"} <= {"driver", "nvml"}

    node.config.write_text(CONFIG + "limits:\n- {memory: 8 bananas}\n")
    wait_until(lambda: agent_client.agent_report(node.run_dir).config.error is not None)
    node.kubelet.stop()
    wait_until(lambda: page(node, "/readyz")[0] == 503)
    status, ill = doctor(node, capsys)

    assert status == 1
    for check, said in (
        ("kubelet", "does not answer"),
        ("podresources", "does not answer"),
        ("config", "8 bananas"),
        ("resources", "not registered"),
    ):
        assert ill[check]["level"] == "fail"
        assert said in ill[check]["message"]
        assert ill[check]["fix"]
    node.kubelet.start()
    node.wait_registered()


def test_a_dead_mps_daemon_is_found(
    node: InProcessNode, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = node.run_dir.parent / "tools" / "nvidia-cuda-mps-control"
    new = tool.with_suffix(".new")  # the present one may be running
    new.write_text("#!/bin/sh\necho gone >&2\nexit 1\n")
    new.chmod(0o755)
    new.rename(tool)

    status, found = doctor(node, capsys)

    assert status == 1
    assert found["mps"]["level"] == "fail"
    assert "does not answer: gone" in found["mps"]["message"]
