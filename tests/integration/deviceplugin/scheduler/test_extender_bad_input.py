"""What clients send that are broken, slow, hostile or many."""

import contextlib
import json
import re
import socket
import threading
import time
from pathlib import Path

import pytest

from support.scheduler.process import ExtenderProcess, pod_json
from support.waiting import PATIENCE_S


def test_what_is_no_call_is_refused_with_a_sentence_and_harms_nobody(
    running: ExtenderProcess,
) -> None:
    deep = b'{"Pod":' + b'{"a":' * 200_000

    for path in ("/filter", "/prioritize", "/preempt", "/bind", "/volcano/predicate"):
        for body in (b"", b"{", b"[1]", b"{}", b"\xff", deep):
            status, text = running.ask("POST", path, body)
            assert (status, text[-1:]) == (400, "\n"), (path, body[:20], text)
            assert len(text) < 600
    assert "malformed: it is nested too deeply" in running.ask("POST", "/filter", deep)[1]
    assert running.ask("POST", "/x", b"{}")[0] == 404
    assert "/filter is asked by POST" in running.ask("GET", "/filter")[1]
    assert running.filter(pod_json("new", 10, 1), ["n2"])["NodeNames"] == ["n2"]
    assert 'calls_refused_total{status="400"} 31.0' in running.get("/metrics")[1]
    # The log has some of it, and is not filled by it.
    assert 1 <= running.log.count('msg="a call was refused"') < 33


def test_50_mb_are_refused_without_being_read(running: ExtenderProcess) -> None:
    with contextlib.closing(running.connect()) as connection:
        connection.putrequest("POST", "/filter")
        connection.putheader("Content-Length", str(50 << 20))
        connection.endheaders()
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (
            413,
            b"the body has 52428800 bytes, and at most 16777216 are read\n",
        )
    # A client that sends on hears of it as long as it is about to end, and costs no memory.
    before = memory_kib(running)
    for size, is_told in ((18 << 20, True), (50 << 20, False)):
        with contextlib.closing(socket.create_connection(("127.0.0.1", running.port))) as client:
            client.sendall(b"POST /filter HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % size)
            with contextlib.suppress(OSError):
                client.sendall(b"x" * (4 << 20 if is_told else size))
            if is_told:
                time.sleep(0.2)
                client.sendall(b"x" * (1 << 20))
                time.sleep(0.2)
                assert client.recv(100).startswith(b"HTTP/1.1 413 ")
    assert memory_kib(running) < before + (8 << 10)
    assert running.filter(pod_json("new", 10, 1), ["n2"])["NodeNames"] == ["n2"]


def test_a_body_may_come_in_chunks_and_not_in_too_many(running: ExtenderProcess) -> None:
    body = json.dumps({"Pod": pod_json("new", 10, 1), "NodeNames": ["n2"]}).encode()
    piece = 1 << 20

    with contextlib.closing(running.connect()) as connection:
        connection.request("POST", "/filter", iter([body[:10], body[10:]]), encode_chunked=True)
        answer = connection.getresponse()
        assert json.loads(answer.read())["NodeNames"] == ["n2"]
        with contextlib.suppress(OSError):  # it may stop reading before we stop sending
            connection.request("POST", "/filter", (b" " * piece for _ in range(20)),
                               encode_chunked=True)  # fmt: skip
        assert connection.getresponse().status == 413
    with contextlib.closing(running.connect()) as connection:
        connection.putrequest("POST", "/filter")
        connection.endheaders()
        assert connection.getresponse().status == 411


def test_clients_that_are_slow_or_silent_keep_nobody_waiting(running: ExtenderProcess) -> None:
    head = b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
    clients = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(150)]
    for number, client in enumerate(clients):
        client.sendall(head[: number % 50] if number % 2 else head + b"{")

    began_s = time.monotonic()
    assert running.filter(pod_json("new", 10, 1), ["n2"])["NodeNames"] == ["n2"]
    assert time.monotonic() - began_s < 2
    # A byte now and then does not keep a call open for ever.
    slow = clients[0]
    slow.settimeout(PATIENCE_S)

    def drip() -> None:
        with contextlib.suppress(OSError):
            for _ in range(100):
                slow.sendall(b" ")
                time.sleep(0.5)

    threading.Thread(target=drip, daemon=True).start()
    with contextlib.suppress(ConnectionError):
        assert slow.recv(100) == b""
    assert time.monotonic() - began_s < 14
    for client in clients:
        client.close()


@pytest.mark.parametrize(
    "said",
    [b"", b"POST /filter HTTP/1.1\r\n", b"POST /filter HTTP/1.1\r\nContent-Length: 9\r\n\r\n1"],
)
def test_connections_beyond_the_limit_cost_the_oldest_without_a_whole_call(
    running: ExtenderProcess, said: bytes
) -> None:
    first = socket.create_connection(("127.0.0.1", running.port))
    first.sendall(said)
    time.sleep(0.05)
    others = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(520)]
    for each in others:
        with contextlib.suppress(ConnectionError):  # some have lost their place by now
            each.sendall(said)

    assert running.get("/healthz") == (200, "ok\n")
    first.settimeout(PATIENCE_S)
    with contextlib.suppress(ConnectionResetError):
        assert first.recv(1) == b""
    for each in (first, *others):
        each.close()
    assert running.filter(pod_json("new", 10, 1), ["n2"])["NodeNames"] == ["n2"]


def memory_kib(found: ExtenderProcess) -> int:
    text = Path(f"/proc/{found.process.pid}/status").read_text()
    match = re.search(r"VmRSS:\s+(\d+)", text)
    assert match is not None
    return int(match[1])
