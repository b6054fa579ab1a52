"""One thread serves many: a client that dawdles, floods or goes away keeps nobody waiting."""

import http.client
import logging
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deviceplugin.http import server
from deviceplugin.http.listeners import tcp_listener, unix_listener
from deviceplugin.http.message import BODY_BYTES, Request, Response
from deviceplugin.http.server import WebServer
from libvgpu.errors import UsageError, VgpuError

WAIT_S = 10.0
LARGE = b"x" * (4 << 20)  # more than a socket's buffers take at once


def echo(request: Request) -> Response:
    if request.path == "/fault":
        raise RuntimeError("planted")
    return Response(200, LARGE if request.path == "/large" else request.body or b"hello")


@pytest.fixture
def port() -> Iterator[int]:
    server, listener = WebServer(), tcp_listener("127.0.0.1:0")
    server.listen(listener, echo)
    server.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.stop()


def ask(port: int, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def client(port: int, said: bytes = b"") -> socket.socket:
    found = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
    found.sendall(said)
    return found


def test_requests_of_all_kinds_are_answered(port: int) -> None:
    assert ask(port, "GET", "/") == (200, b"hello")
    assert ask(port, "POST", "/", b"body") == (200, b"body")
    assert ask(port, "HEAD", "/") == (200, b"")
    assert ask(port, "GET", "/large") == (200, LARGE)


def test_a_fault_of_a_handler_is_an_answer_and_ends_nothing(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "deviceplugin")

    assert ask(port, "GET", "/fault")[0] == 500
    assert ask(port, "GET", "/") == (200, b"hello")
    assert "GET /fault failed" in caplog.messages


def test_a_client_that_dawdles_keeps_nobody_waiting_and_is_dropped(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "READ_TIMEOUT_S", 0.3)
    with client(port, b"GET / HT") as slow:
        started = time.monotonic()

        assert ask(port, "GET", "/") == (200, b"hello")
        assert time.monotonic() - started < 0.3
        assert slow.recv(1) == b"", "it was not dropped"


def test_more_clients_than_places_cost_the_oldest_its_place(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 4)
    monkeypatch.setattr(server, "READ_TIMEOUT_S", 60.0)
    idle = [client(port) for _ in range(10)]
    try:
        assert ask(port, "GET", "/") == (200, b"hello")
        assert idle[0].recv(1) == b""
    finally:
        for each in idle:
            each.close()


def test_a_body_too_large_is_refused_and_the_refusal_arrives(port: int) -> None:
    status, said = ask(port, "POST", "/", b"x" * (BODY_BYTES + 1))

    assert status == 413
    assert str(BODY_BYTES).encode() in said


def test_clients_that_go_away_at_any_moment_end_nothing(port: int) -> None:
    for said in (b"", b"GET", b"GET /large HTTP/1.1\r\n\r\n", b"POST / HTTP/1.1\r\n\r\nmore"):
        gone = client(port, said)
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
        gone.close()

    assert ask(port, "GET", "/") == (200, b"hello")


def test_stopping_ends_connections_and_listener(port: int) -> None:
    server, listener = WebServer(), tcp_listener("127.0.0.1:0")
    server.listen(listener, echo)
    server.start()
    mine = listener.getsockname()[1]
    with client(mine, b"GET / HT") as slow:
        assert ask(mine, "GET", "/") == (200, b"hello")  # so the first is known

        server.stop()

        assert slow.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        client(mine)


def test_the_file_of_a_socket_is_its_owners_alone_and_replaces_an_old_one(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    path.write_text("left behind")
    before = os.umask(0)
    try:
        with unix_listener(path):
            mode = path.stat().st_mode

            assert stat.S_ISSOCK(mode)
            assert stat.S_IMODE(mode) == 0o600
            assert [p.name for p in tmp_path.iterdir()] == ["agent.sock"]
    finally:
        os.umask(before)


def test_sockets_that_cannot_be_are_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="longer than a Unix socket may have"):
        unix_listener(tmp_path / ("x" * 100))
    with pytest.raises(VgpuError, match="cannot be made: No such file"):
        unix_listener(Path("/tmp/vgpu-absent-directory/agent.sock"))
    with pytest.raises(UsageError, match="is not HOST:PORT"):
        tcp_listener("9446")
    with tcp_listener("127.0.0.1:0") as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UsageError, match="cannot be bound: Address already in use"):
            tcp_listener(address)
