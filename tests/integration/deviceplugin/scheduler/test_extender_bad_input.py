"""What clients send that are broken, slow, hostile or many."""

import contextlib
import re
import socket
import time
from pathlib import Path

from support.scheduler.process import ExtenderProcess, pod_json


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
    assert "/filter must be called with POST" in running.ask("GET", "/filter")[1]
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


def memory_kib(found: ExtenderProcess) -> int:
    text = Path(f"/proc/{found.process.pid}/status").read_text()
    match = re.search(r"VmRSS:\s+(\d+)", text)
    assert match is not None
    return int(match[1])
