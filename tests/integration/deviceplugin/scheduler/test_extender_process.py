"""The extender as a process next to a simulated API server: what schedulers and others send it."""

import contextlib
import json
import os
import re
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from benchmarks.simulated_cluster.kinds import LEASE, POD
from deviceplugin.scheduler.wire.server import CALLS
from support import warm
from support.api_server.cluster_server import NAMESPACE, ClusterServer
from support.scheduler.process import ExtenderProcess, extender, make_certificate, pod_json
from support.scheduler.values import DOMAIN
from support.scheduler.volcano_calls import ALLOCATED, node_info, predicate, prioritize, task
from support.waiting import PATIENCE_S, wait_until

GPUS = f"{DOMAIN}/vgpu.gpus"


def is_bound(server: ClusterServer, name: str, node: str) -> bool:
    return bool(server.store.get(POD, "team", name).content["spec"].get("nodeName") == node)


def test_a_pod_is_filtered_scored_and_bound_with_its_gpu(
    server: ClusterServer, running: ExtenderProcess
) -> None:
    pod = server.create_pod(pod_json("new", 60, 10))

    found = running.filter(pod, ["n1", "n2", "n9"])
    scores = running.call("/prioritize", {"Pod": pod, "NodeNames": found["NodeNames"]})
    error = running.bind(pod, "n2")

    assert found["NodeNames"] == ["n2"]
    assert "60" in found["FailedNodes"]["n1"]
    assert "no inventory of this node: n9" in found["FailedAndUnresolvableNodes"]["n9"]
    assert scores == [{"Host": "n2", "Score": scores[0]["Score"]}]
    assert error == ""
    bound = server.store.get(POD, "team", "new").content
    assert bound["spec"]["nodeName"] == "n2"
    assert json.loads(bound["metadata"]["annotations"][GPUS]) == {
        "node": "n2",
        "containers": {"main": ["GPU-n2-0"]},
    }
    page = running.get("/metrics")[1]
    assert 'vgpu_scheduler_binds_total{outcome="bound"} 1.0' in page
    assert 'vgpu_scheduler_nodes_judged_total{finding="no-inventory"} 1.0' in page
    assert 'vgpu_scheduler_call_duration_seconds_count{call="filter"} 1.0' in page


def test_without_the_api_server_the_last_state_is_used_until_its_limit(
    server: ClusterServer, tmp_path: Path
) -> None:
    pod = pod_json("new", 60, 10)
    with extender(server, tmp_path, "--no-leader-elect", "--state-limit=1") as found:
        server.stop()
        assert found.filter(pod, ["n1", "n2"])["NodeNames"] == ["n2"]
        assert "is not reached" in found.bind(pod, "n2")

        error = wait_until(lambda: found.filter(pod, ["n1", "n2"])["Error"], "it is too old", 30)
        assert re.match(r"what is known of nodes and pods is \d+ s old, and is used for 1", error)
        status, text = found.get("/readyz")
        assert (status, "s old" in text) == (503, True)
        assert found.get("/healthz")[0] == 200
        assert "s old" in found.bind(pod, "n2")
        assert (
            found.ask(
                "POST", "/prioritize", json.dumps({"Pod": pod, "NodeNames": ["n1"]}).encode()
            )[0]
            == 503
        )

        server.start()
        wait_until(lambda: not found.filter(pod, ["n1"])["Error"], "it is known again", 30)
        found.wait_for("nodes and pods are known again")


def test_the_certificate_may_be_replaced(server: ClusterServer, tmp_path: Path) -> None:
    tls = tmp_path / "tls"
    make_certificate(tls)
    with extender(server, tmp_path, "--no-leader-elect", tls=tls) as found:
        pod = pod_json("new", 10, 1)
        with contextlib.closing(found.connect()) as kept:
            kept.request("GET", "/healthz")
            assert kept.getresponse().read() == b"ok\n"
            make_certificate(tls)  # the new one is trusted by what connects from now on
            assert found.filter(pod, ["n2"])["NodeNames"] == ["n2"]
            found.wait_for("new certificate in use")
            kept.request("GET", "/healthz")
            assert kept.getresponse().read() == b"ok\n"
        with contextlib.closing(
            socket.create_connection(("127.0.0.1", found.port), timeout=PATIENCE_S)
        ) as plain:
            plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"HTTP" not in plain.recv(100)


def test_a_replica_that_does_not_lead_passes_a_bind_on_once(
    server: ClusterServer, tmp_path: Path
) -> None:
    tls = tmp_path / "tls"
    make_certificate(tls)
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(extender(server, tmp_path, tls=tls, name="first"))
        first.wait_leader()
        second = stack.enter_context(extender(server, tmp_path, tls=tls, name="second"))
        pods = [server.create_pod(pod_json(f"x{n}", 10, 1)) for n in range(3)]

        wait_until(lambda: not second.bind(pods[0], "n2"), "it is passed on")
        first.wait_for(r'msg="bound a pod" pod=team/x0')
        assert second.filter(pods[1], ["n2"])["NodeNames"] == ["n2"]  # all of them answer this
        body = {
            "PodName": "x1",
            "PodNamespace": "team",
            "PodUID": pods[1]["metadata"]["uid"],
            "Node": "n2",
        }
        with contextlib.closing(second.connect()) as connection:
            connection.request("POST", "/bind", json.dumps(body), {"X-Vgpu-Forwarded": "1"})
            told = json.loads(connection.getresponse().read())["Error"]
        assert told == "this replica does not bind, and the call was passed on once already"

        os.kill(first.process.pid, signal.SIGTERM)
        assert first.process.wait(PATIENCE_S) == 0
        second.wait_leader()
        assert second.bind(pods[2], "n2") == ""


def test_the_election_is_where_no_agent_writes_and_the_former_one_means_nothing(
    server: ClusterServer, tmp_path: Path
) -> None:
    former = {"name": "vgpu-scheduler", "namespace": NAMESPACE}
    server.store.create(LEASE, {"metadata": former, "spec": {"holderIdentity": "old/10.0.0.1:1"}})

    def holders() -> dict[str, str]:
        return {
            each.content["metadata"]["namespace"]: each.content["spec"]["holderIdentity"]
            for each in server.store.list(LEASE)[1]
            if each.content["metadata"]["name"] == "vgpu-scheduler"
        }

    with extender(server, tmp_path, "--election-namespace=apart", name="one") as one:
        one.wait_leader()
        assert holders().keys() == {"apart", NAMESPACE}
        assert holders()["apart"] == holders()[NAMESPACE] != "old/10.0.0.1:1"


def test_nobody_who_has_no_certificate_for_the_name_gets_a_bind_passed_on(
    server: ClusterServer, tmp_path: Path
) -> None:
    tls = tmp_path / "tls"
    make_certificate(tls, "somebody.else.svc")
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(extender(server, tmp_path, tls=tls, name="first"))
        first.wait_leader()
        second = stack.enter_context(extender(server, tmp_path, tls=tls, name="second"))
        pod = server.create_pod(pod_json("x", 10, 1))

        told = wait_until(
            lambda: error if "elected" not in (error := second.bind(pod, "n2")) else "",
            "it tries to pass it on",
        )

    assert "does not answer" in told and "ertificate" in told
    assert not server.store.get(POD, "team", "x").content["spec"].get("nodeName")


def test_a_scheduler_without_a_certificate_is_refused_where_one_is_asked_for(
    server: ClusterServer, tmp_path: Path
) -> None:
    tls, other = tmp_path / "tls", tmp_path / "other"
    for directory in (tls, other):
        make_certificate(directory)
    client = tmp_path / "client"
    make_certificate(client, "scheduler")
    options = [f"--client-ca={client / 'tls.crt'}", f"--shown-tls-dir={client}"]
    with extender(server, tmp_path, *options, tls=tls, name="first") as first:
        first.wait_leader()
        pod = server.create_pod(pod_json("x", 10, 1))
        body = json.dumps({"Pod": pod, "NodeNames": ["n2"]}).encode()

        for method, path in [*(("POST", path) for path in CALLS), ("GET", "/metrics")]:
            for first.shows in (None, other, tls):
                with pytest.raises(OSError, match=r"(?i)certificate|unknown ca|reset|closed|EOF"):
                    first.ask(method, path, body if method == "POST" else None)
        assert not is_bound(server, "x", "n2")
        assert first.get("/metrics")[0] == 200
        first.shows = client
        assert first.filter(pod, ["n2"])["NodeNames"] == ["n2"]
        with extender(server, tmp_path, *options, tls=tls, name="second") as second:
            second.shows = client
            wait_until(
                lambda: not second.bind(pod, "n2") or is_bound(server, "x", "n2"),
                "it is passed on, though the answer may come too late",
            )


def test_volcanos_gang_is_placed_over_http(running: ExtenderProcess) -> None:
    placed: list[dict[str, Any]] = []
    for number in range(3):
        pod = pod_json(f"g{number}", 60, 8)
        info = node_info("n2", placed)
        status, text = running.ask("POST", "/volcano/predicate", predicate(task(pod), info))
        assert status == 200
        if json.loads(text) == {"status": "", "code": 0}:
            placed.append(task(pod, ALLOCATED, "n2"))
    assert len(placed) == 2
    answer = json.loads(text)
    assert answer["code"] == 2 and "next to 2" in answer["status"]
    nodes = [node_info("n1"), node_info("n2", placed)]
    status, text = running.ask(
        "POST", "/volcano/prioritize", prioritize(task(pod_json("small", 40, 8)), nodes)
    )
    assert json.loads(text)["nodeScore"]["n1"] > 0
    for verb in ("onSessionOpen", "onSessionClose"):
        assert running.ask("POST", f"/volcano/{verb}", b'{"Jobs": {}}') == (200, "{}")


def test_without_bind_it_says_so(server: ClusterServer, tmp_path: Path) -> None:
    with extender(server, tmp_path, "--no-bind") as found:
        assert found.filter(pod_json("x", 10, 1), ["n2"])["NodeNames"] == ["n2"]
        assert "leave bindVerb out" in found.bind(pod_json("x", 10, 1), "n2")


def test_quotas_of_the_file_count_and_follow_it(server: ClusterServer, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("version: v1\nquotas:\n  - {namespace: team, core: 5}\n")
    pod = pod_json("x", 10, 1)
    with extender(server, tmp_path, "--no-leader-elect", f"--config={config}") as found:
        assert "quota" in found.filter(pod, ["n2"])["FailedAndUnresolvableNodes"]["n2"]
        config.write_text("version: v1\nquotas:\n  - {namespace: team, core: 500}\n")
        wait_until(lambda: found.filter(pod, ["n2"])["NodeNames"], "the new quota counts")
        config.write_text("version: v1\nquotas: 3\n")
        found.wait_for("config rejected, the last quotas stay")
        assert found.filter(pod, ["n2"])["NodeNames"] == ["n2"]
        assert "vgpu_scheduler_config_reload_success 0.0" in found.get("/metrics")[1]


@pytest.mark.parametrize(
    ("options", "status", "says"),
    [
        ([], 2, "give either --tls-dir DIR or --plain-http"),
        (["--plain-http", "--tls-dir=/nowhere"], 2, "give either"),
        (["--tls-dir=/nowhere"], 2, "has no certificate"),
        (["--plain-http", "--client-ca=/nowhere"], 2, "--client-ca needs --tls-dir"),
        (["--tls-dir=/x", "--client-ca=/nowhere"], 2, "--client-ca needs --probe-address"),
        (["--plain-http", "--config=/nowhere"], 2, "config file /nowhere cannot be read"),
        (["--plain-http", "--resource-domain=x"], 2, "is not a domain name like nvidia.com"),
        (["--plain-http", "--address=x"], 2, "--address 'x' is not HOST:PORT"),
        (["--plain-http", "--advertise=x"], 2, "--advertise 'x' is not HOST:PORT"),
        (["--plain-http", "--node-policy=tight"], 2, "--node-policy"),
        (["--plain-http", "--service-account=/nowhere"], 1, "there is no API server to ask"),
    ],
)
def test_what_it_cannot_start_with_is_one_sentence(
    server: ClusterServer, options: list[str], status: int, says: str
) -> None:
    account = [f"--service-account={server.account}"]
    words = ["-m", "deviceplugin.scheduler", *account, *options]
    ended = warm.run(words, os.environ | server.environment())

    assert ended.returncode == status, ended.stderr
    assert says in ended.stderr and "Traceback" not in ended.stderr
