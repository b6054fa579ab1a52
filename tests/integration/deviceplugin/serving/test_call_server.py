"""The server of webhook and extender: whatever is sent to it, no thread of it fails."""

import contextlib
import http.client
import logging
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.unfinished_calls import hello
from deviceplugin.serving.call_server import CallServer
from deviceplugin.serving.calls import TEXT, Answer, Call, Limits
from deviceplugin.serving.certificate import Certificate
from deviceplugin.serving.listeners import tcp_listener
from support.scheduler.process import make_certificate
from support.waiting import PATIENCE_S, wait_until

LIMITS = Limits(body_bytes=2000, bodies_bytes=8000, calls=4, pages=4, read_s=0.5)


class Served:
    """A server whose calls wait until they are let go."""

    def __init__(self, limits: Limits = LIMITS, certificate: Certificate | None = None) -> None:
        self.told: list[tuple[str, int]] = []
        self.ahead_s = 0.0
        self.go_on = threading.Event()
        self.go_on.set()
        self.inside = threading.Semaphore(0)
        self.server = CallServer(
            tcp_listener("127.0.0.1:0"),
            {
                ("POST", "/echo"): self.echo,
                ("GET", "/healthz"): self.health,
                ("GET", "/page"): self.echo,
                ("POST", "/fault"): self.fault,
                ("GET", "/big"): self.big,
                ("POST", "/big"): self.big,
            },
            certificate,
            limits,
            lambda path, status, seconds: self.told.append((path, status)),
            lambda: time.monotonic() + self.ahead_s,
        )
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def echo(self, call: Call) -> Answer:
        self.inside.release()
        assert self.go_on.wait(PATIENCE_S)
        return Answer(call.body, kind=TEXT)

    def health(self, call: Call) -> Answer:
        return Answer(b"ok", kind=TEXT)

    def big(self, call: Call) -> Answer:
        return Answer(b"x" * BIG, kind=TEXT)

    def fault(self, call: Call) -> Answer:
        raise RuntimeError("a fault of ours")

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        port = self.server.server_address[1]
        with contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        ) as one:
            one.request(method, path, body)
            answer = one.getresponse()
            return answer.status, answer.read()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def served() -> Iterator[Served]:
    found = Served()
    yield found
    found.stop()


@pytest.mark.parametrize(
    ("method", "path", "what"), [("POST", "/echo", b"4 calls"), ("GET", "/page", b"4 pages")]
)
def test_calls_beyond_the_limit_are_told_to_come_again_and_probes_are_not(
    served: Served, method: str, path: str, what: bytes
) -> None:
    body = b"x" if method == "POST" else None
    served.go_on.clear()
    answers: list[int] = []
    waiting = [
        threading.Thread(target=lambda: answers.append(served.ask(method, path, body)[0]))
        for _ in range(4)
    ]
    for each in waiting:
        each.start()
    assert all(served.inside.acquire(timeout=PATIENCE_S) for _ in waiting)

    status, why = served.ask(method, path, body)

    assert (status, what + b" are being answered" in why) == (503, True)
    assert served.ask("GET", "/healthz") == (200, b"ok")
    served.go_on.set()
    for each in waiting:
        each.join()
    assert answers == [200] * 4
    assert served.ask("POST", "/echo", b"x") == (200, b"x")


def test_a_fault_of_ours_is_an_answer_and_a_trace_in_the_log(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "deviceplugin"):
        status, why = served.ask("POST", "/fault", b"x")

    assert (status, why) == (500, b"the program failed; see its log\n")
    assert "a fault of ours" in caplog.text
    assert served.told == [("/fault", 500)]


def test_a_head_that_is_longer_than_any_honest_one_is_refused(served: Served) -> None:
    """Else some hundred connections take gigabytes: a head may have 100 lines of 64 KiB."""
    with contextlib.closing(
        socket.create_connection(("127.0.0.1", served.server.server_address[1]), PATIENCE_S)
    ) as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(b"POST /echo HTTP/1.1\r\n")
            for number in range(64):
                client.sendall(b"h%d: %s\r\n" % (number, b"v" * 15_000))
        with contextlib.suppress(ConnectionError):
            assert client.recv(100).startswith(b"HTTP/1.1 431 ")

    assert served.ask("POST", "/echo", b"x") == (200, b"x")


def test_a_client_that_asks_first_is_told_to_send_only_what_is_read(served: Served) -> None:
    for length, first in ((5, b"HTTP/1.1 100 "), (5000, b"HTTP/1.1 413 ")):
        with contextlib.closing(
            socket.create_connection(("127.0.0.1", served.server.server_address[1]), 10)
        ) as client:
            client.sendall(
                b"POST /echo HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
                % length
            )
            assert client.recv(200).startswith(first)
            if length == 5:
                client.sendall(b"12345")
                assert b"12345" in client.recv(1000)


_LINES = st.sampled_from(
    [b"POST /echo HTTP/1.1", b"GET /healthz HTTP/1.1", b"GET /healthz HTTP/0.9", b"PUT /x HTTP/1.0",
     b"POST /echo HTTP/9.9", b"Content-Length: 3", b"Content-Length: 3000", b"Content-Length: x",
     b"Transfer-Encoding: chunked", b"Expect: 100-continue", b"Connection: close", b"", b"3", b"0",
     b"abc", b"Host: x", b": ", b"GET", b"\x00\xff", b"X" * 70_000]
)  # fmt: skip


@given(st.lists(_LINES | st.binary(max_size=20), max_size=8))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_sent_no_thread_fails(
    served: Served, caplog: pytest.LogCaptureFixture, lines: list[bytes]
) -> None:
    where = ("127.0.0.1", served.server.server_address[1])
    with (
        caplog.at_level(logging.ERROR, "deviceplugin"),
        contextlib.suppress(OSError),
        contextlib.closing(socket.create_connection(where, 10)) as client,
    ):
        client.sendall(b"\r\n".join(lines))
        client.shutdown(socket.SHUT_WR)
        while client.recv(10_000):
            pass
    assert served.ask("POST", "/echo", b"still") == (200, b"still")
    assert "failed" not in caplog.text


#: Nobody is dropped for being slow, so who waits for that waits longer than any test.
PATIENT = Limits(
    connections=64, calls=4, bodies_bytes=1 << 20, head_s=900.0, read_s=900.0, grace_s=900.0
)
BIG = 8 << 20  # more than a socket's buffers take


@pytest.fixture
def patient() -> Iterator[Served]:
    found = Served(PATIENT)
    yield found
    found.stop()


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"POST /echo HTTP/1.1\r\n",
        b"POST /echo HTTP/1.1\r\nContent-Length: 9\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nContent-Length: 9\r\n\r\n1234",
        b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n",
        b"GET /big HTTP/1.1\r\n\r\n",
        b"POST /big HTTP/1.1\r\nContent-Length: 1\r\n\r\nx",
    ],
)
def test_connections_that_end_nothing_keep_nobody_out(patient: Served, said: bytes) -> None:
    where = ("127.0.0.1", patient.server.server_address[1])
    crowd = [socket.create_connection(where, PATIENCE_S) for _ in range(70)]
    try:
        for each in crowd:
            with contextlib.suppress(OSError):  # it has lost its place already
                each.sendall(said)

        def is_answered() -> bool:
            patient.ahead_s += 2.0  # an honest client would be through
            return patient.ask("POST", "/echo", b"x") == (200, b"x")

        assert patient.ask("GET", "/healthz") == (200, b"ok")
        wait_until(is_answered)
        with contextlib.suppress(ConnectionResetError):
            while crowd[0].recv(1 << 16):  # it ends
                pass
    finally:
        for each in crowd:
            each.close()


def test_a_call_that_is_being_answered_keeps_its_place(patient: Served) -> None:
    patient.go_on.clear()
    answers: list[tuple[int, bytes]] = []
    asking = threading.Thread(target=lambda: answers.append(patient.ask("POST", "/echo", b"x")))
    asking.start()
    assert patient.inside.acquire(timeout=PATIENCE_S)
    where = ("127.0.0.1", patient.server.server_address[1])
    crowd = [socket.create_connection(where, PATIENCE_S) for _ in range(70)]

    assert patient.ask("GET", "/healthz") == (200, b"ok")
    patient.go_on.set()
    asking.join()
    assert answers == [(200, b"x")]
    for each in crowd:
        each.close()


def test_a_crowd_takes_neither_threads_nor_the_place_of_who_showed_a_certificate(
    tmp_path: Path,
) -> None:
    """From as many addresses as connections, so that none has more than others."""
    make_certificate(tmp_path)
    served = Served(PATIENT, Certificate(tmp_path, tmp_path / "tls.crt"))
    port = served.server.server_address[1]
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    greeting = hello()
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    kept = http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE_S, context=context)

    def is_answered() -> bool:
        kept.request("POST", "/echo", b"x")
        return kept.getresponse().read() == b"x"

    with contextlib.ExitStack() as stack:
        stack.callback(served.stop)
        stack.callback(kept.close)
        assert is_answered()
        connection, threads = kept.sock, threading.active_count()
        for number in range(200):
            where = (f"127.0.1.{number + 1}", 0)
            one = socket.create_connection(("127.0.0.1", port), PATIENCE_S, source_address=where)
            stack.callback(one.close)
            with contextlib.suppress(OSError):  # it has lost its place already
                one.sendall((b"", greeting[:1], greeting)[number % 3])

        assert is_answered() and kept.sock is connection
        assert threading.active_count() == threads


def test_handshakes_that_never_end_keep_nobody_out(tmp_path: Path) -> None:
    make_certificate(tmp_path)
    served = Served(PATIENT, Certificate(tmp_path))
    where = ("127.0.0.1", served.server.server_address[1])
    crowd = [socket.create_connection(where, PATIENCE_S) for _ in range(70)]
    try:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        one = http.client.HTTPSConnection(*where, timeout=PATIENCE_S, context=context)
        with contextlib.closing(one):
            one.request("GET", "/healthz")
            assert one.getresponse().read() == b"ok"
    finally:
        for each in crowd:
            each.close()
        served.stop()


def test_a_hello_costs_no_tls_before_all_of_it_has_come(tmp_path: Path) -> None:
    begun: list[int] = []

    class Counted(Certificate):
        def context(self) -> ssl.SSLContext:
            begun.append(1)
            return super().context()

    make_certificate(tmp_path)
    served = Served(Limits(head_s=10 * PATIENCE_S), Counted(tmp_path))
    where = ("127.0.0.1", served.server.server_address[1])
    greeting = hello()
    try:
        with (
            socket.create_connection(where, PATIENCE_S) as slow,
            socket.create_connection(where, PATIENCE_S) as quick,
            socket.create_connection(where, PATIENCE_S) as ending,
        ):
            for piece in (greeting[:1], greeting[1:40]):
                slow.sendall(piece)
            ending.sendall(greeting[:40])
            ending.shutdown(socket.SHUT_WR)
            assert ending.recv(1) == b"", "who says no more is not waited for"
            quick.sendall(greeting)
            assert quick.recv(1)
            assert len(begun) == 1
            slow.sendall(greeting[40:])
            assert slow.recv(1)
            assert len(begun) == 2
    finally:
        served.stop()
