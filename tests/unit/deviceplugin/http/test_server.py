"""A client that dawdles, floods or goes away keeps nobody waiting, and every request is bounded."""

import http.client
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from wsgiref.types import StartResponse, WSGIEnvironment

import pytest
from waitress.trigger import trigger
from werkzeug.wrappers import Request, Response

from deviceplugin.http import server
from deviceplugin.http.server import BODY_BYTES, HEAD_BYTES, MOST_CONNECTIONS, HttpServer
from deviceplugin.serving.listeners import tcp_listener, unix_listener
from libvgpu.errors import UsageError, VgpuError
from support.waiting import PATIENCE_S, wait_until

LARGE = b"x" * (4 << 20)  # more than a socket's buffers take at once


def echo(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    request = Request(environ)
    body = LARGE if request.path == "/large" else request.get_data() or b"hello"
    return Response(body)(environ, start_response)


@contextmanager
def serving(
    answer: Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]] = echo,
    *more: socket.socket,
) -> Iterator[tuple[HttpServer, int]]:
    """A server on a port of its own, and on other listeners."""
    served, listener = HttpServer(), tcp_listener("127.0.0.1:0")
    served.listen(listener, answer, urgent=("/healthz",))
    for each in more:
        served.listen(each, answer)
    served.start()
    try:
        yield served, listener.getsockname()[1]
    finally:
        served.stop()


@pytest.fixture
def port() -> Iterator[int]:
    with serving() as (_, port):
        yield port


def ask(port: int, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def client(port: int, said: bytes = b"") -> socket.socket:
    found = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    found.sendall(said)
    return found


@contextmanager
def flood(at_the_end: Callable[[], object] = lambda: None) -> Iterator[list[socket.socket]]:
    """Clients that are closed at the end."""
    clients: list[socket.socket] = []
    try:
        yield clients
    finally:
        at_the_end()
        for each in clients:
            each.close()


def test_requests_of_all_kinds_are_answered(port: int) -> None:
    assert ask(port, "GET", "/") == (200, b"hello")
    assert ask(port, "POST", "/", b"body") == (200, b"body")
    assert ask(port, "POST", "/", b"x" * BODY_BYTES) == (200, b"x" * BODY_BYTES)
    assert ask(port, "HEAD", "/") == (200, b"")
    assert ask(port, "GET", "/large") == (200, LARGE)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_TIMEOUT_S", 1)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is dropped for being slow, so who waits for that waits longer than any test."""
    monkeypatch.setattr(server, "REQUEST_TIMEOUT_S", 10 * PATIENCE_S)


def drip(client: socket.socket) -> None:
    """Sends a byte now and then, which is no sign of life, until the connection breaks."""
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        client.sendall(b"x")
        time.sleep(0.1)


@pytest.mark.usefixtures("patient")
def test_a_client_that_dawdles_keeps_nobody_waiting(port: int) -> None:
    with client(port, b"GET / HT"), client(port, b"GET /"):
        assert ask(port, "GET", "/") == (200, b"hello")


@pytest.mark.usefixtures("hasty")
def test_a_client_that_dawdles_is_dropped(port: int) -> None:
    with client(port, b"GET / HT") as slow, client(port, b"GET /") as dripping:
        with pytest.raises(OSError, match=r"Broken pipe|reset"):
            drip(dripping)
        assert slow.recv(1) == b"", "it was not dropped"


@pytest.mark.usefixtures("patient")
def test_more_clients_than_places_cost_the_oldest_its_place(port: int) -> None:
    with flood() as idle:
        idle += [client(port) for _ in range(3 * MOST_CONNECTIONS)]
        assert ask(port, "GET", "/") == (200, b"hello")
        assert idle[0].recv(1) == b""


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("scrapes", [8, 3 * MOST_CONNECTIONS])
def test_a_probe_does_not_queue_behind_scrapes(scrapes: int) -> None:
    may_end, begun = threading.Event(), threading.Semaphore(0)

    def slow(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/metrics":
            begun.release()
            assert may_end.wait(PATIENCE_S)
        return Response(b"ok")(environ, start_response)

    served, listener = HttpServer(), tcp_listener("127.0.0.1:0")
    served.listen(listener, slow, urgent=("/healthz",))
    served.start()
    port = listener.getsockname()[1]
    flood: list[socket.socket] = []
    try:
        for _ in range(scrapes):
            flood.append(client(port, b"GET /metrics HTTP/1.1\r\n\r\n"))
        for _ in range(server._THREADS):
            assert begun.acquire(timeout=PATIENCE_S)

        assert ask(port, "GET", "/healthz") == (200, b"ok")
        assert not begun.acquire(blocking=False), "more scrapes at once than there are threads"

        may_end.set()
        assert flood[0].recv(1 << 14).startswith(b"HTTP/1.1 200")
    finally:
        may_end.set()
        for each in flood:
            each.close()
        served.stop()


@pytest.mark.usefixtures("patient")
def test_clients_that_do_not_read_keep_nobody_waiting(port: int) -> None:
    # Several to a connection would be more than is kept for it, and a thread would wait.
    with flood() as unread:
        unread += [client(port, b"GET /large HTTP/1.1\r\n\r\n" * 16) for _ in range(4)]
        for _ in range(3):
            assert ask(port, "GET", "/healthz") == (200, b"hello")
            assert ask(port, "GET", "/metrics") == (200, b"hello")

        found = bytearray()
        while piece := unread[0].recv(1 << 20):
            found += piece
        # Of those that came in one piece the first, and another if it was answered by then.
        assert 1 <= found.count(b"HTTP/1.1 200") <= 4


@pytest.mark.usefixtures("patient")
def test_a_flood_of_one_socket_does_not_reach_another(tmp_path: Path) -> None:
    with serving(echo, unix_listener(tmp_path / "s")) as (_, port), flood() as clients:
        clients += [client(port, b"GET / HT") for _ in range(2 * MOST_CONNECTIONS)]
        with socket.socket(socket.AF_UNIX) as mine:
            mine.settimeout(PATIENCE_S)
            mine.connect(str(tmp_path / "s"))
            mine.sendall(b"GET / HTTP/1.0\r\n\r\n")

            assert mine.recv(1 << 14).startswith(b"HTTP/1.0 200")


def test_a_request_too_large_is_refused_and_the_refusal_arrives(port: int) -> None:
    assert ask(port, "POST", "/", b"x" * (BODY_BYTES + 1))[0] == 413
    assert ask(port, "GET", "/" + "x" * HEAD_BYTES)[0] == 431


@pytest.mark.parametrize("said", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nnonsense\r\n\r\n"])
def test_what_is_no_request_is_refused(port: int, said: bytes) -> None:
    with client(port, said) as other:
        assert b" 400 Bad Request" in other.recv(1 << 14).splitlines()[0]


def test_clients_that_go_away_at_any_moment_end_nothing(port: int) -> None:
    for said in (b"", b"GET", b"GET /large HTTP/1.1\r\n\r\n", b"POST / HTTP/1.1\r\n\r\nmore"):
        gone = client(port, said)
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
        gone.close()

    assert ask(port, "GET", "/") == (200, b"hello")


def test_stopping_ends_connections_and_listener(port: int) -> None:
    before = set(threading.enumerate())
    with serving() as (served, mine), client(mine, b"GET / HT") as slow:
        assert ask(mine, "GET", "/") == (200, b"hello")  # so the first is known

        served.stop()

        assert slow.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        client(mine)
    # A thread counts as ended before it is gone.
    wait_until(lambda: set(threading.enumerate()) <= before)


def test_a_loop_that_somebody_woke_a_moment_before_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wake: Callable[[trigger], None] = vars(trigger)["_physical_pull"]  # its stub leaves it out

    def wake_late(self: trigger) -> None:
        wake(self)  # as a thread that answers does
        wait_until(lambda: not self.thunks)
        wake(self)

    served, listener = HttpServer(), tcp_listener("127.0.0.1:0")
    served.listen(listener, echo)
    served.start()
    monkeypatch.setattr(trigger, "_physical_pull", wake_late)

    served.stop()

    assert listener.fileno() == -1


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


def test_sockets_that_cannot_be_are_refused_with_a_message(tmp_path: Path) -> None:
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
