"""The simulated API server over TLS on a free port of 127.0.0.1: HTTP/1.1, with watches.

One thread for each connection. What it keeps (`store`) may be changed from outside meanwhile; what
is to go wrong is in `faults`.
"""

import contextlib
import socket
import ssl
import threading
import urllib.parse
from collections import Counter, deque
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import msgspec

from deviceplugin.kube.api_client import ApiServer

from .account import TOKEN, make_account
from .calls import Answer, Calls, place_of
from .faults import CUT, Faults, Planted
from .object_store import ObjectStore
from .refusals import ApiFailure
from .watches import Watch

_HANDSHAKE_S = 10.0
_QUEUE = 256
_MOST_CALLED = 10_000


class SimulatedApiServer:
    """Serves from `start` to `stop`; may be started again, on the same port.

    Attributes:
        account: what a pod has of its service account.
        store: what it keeps.
        faults: what is to go wrong.
        token: the one it knows.
        counted: how often each was called, by method and kind (``GET pods``, ``WATCH pods``,
            ``POST pods/binding``).
        called: method, and path with query, of the last calls.
        bookmark_every_s: how often watches are told how far they are; None: never.
        most_watch_s: how long a watch may be open.
    """

    def __init__(
        self, base: Path, namespace: str = "default", store: ObjectStore | None = None
    ) -> None:
        """Makes its certificate below ``base``.

        Args:
            namespace: of the service account.

        Raises:
            VgpuError: openssl is not installed.
        """
        self.account = make_account(base, namespace)
        self.store = store or ObjectStore()
        self._calls = Calls(self.store)
        self.faults = Faults()
        self.token = TOKEN
        self.counted: Counter[str] = Counter()
        self.called: deque[tuple[str, str]] = deque(maxlen=_MOST_CALLED)
        self.bookmark_every_s: float | None = 1.0
        self.most_watch_s = 600.0
        self.port = 0
        self._watches: set[Watch] = set()
        self._server: _TlsServer | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begins to serve."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.account / "ca.crt", self.account / "server.key")
        self._server = _TlsServer(self, context)
        self.port = self._server.server_address[1]
        threading.Thread(
            target=self._server.serve_forever, args=(0.02,), name="simulated API", daemon=True
        ).start()

    def stop(self) -> None:
        """Ends it and every connection; what it keeps stays."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server.cut_all()
            self._server = None
        self.drop_watches()

    def drop_watches(self) -> None:
        """Ends all watches as a network does that fails."""
        for watch in tuple(self._watches):
            watch.cut()

    def expire(self) -> None:
        """Forgets all changes and all lists under way, and ends all watches with status 410."""
        self.store.forget_changes()
        self._calls.forget_pages()
        for watch in tuple(self._watches):
            watch.expire()

    def say(self, line: bytes | None) -> None:
        """Sends a line to all watches, whatever it is; None ends them as their time does."""
        for watch in tuple(self._watches):
            watch.say(line)

    @property
    def open_watches(self) -> int:
        """How many there are."""
        return len(self._watches)

    def api(self) -> ApiServer:
        """Returns how a pod of the cluster reaches it."""
        found = ApiServer.from_environment(self.environment(), self.account)
        assert found is not None
        return found

    def environment(self) -> dict[str, str]:
        """Returns the variables by which a pod finds it."""
        return {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.port),
        }

    def handle(
        self, method: str, target: str, token: str, kind_of_body: str, body: bytes
    ) -> Answer | None:
        """Answers one call; None where the connection is to be cut."""
        self.called.append((method, target))
        place = place_of(target.partition("?")[0])
        if place is not None:
            is_watch = "watch=" in target.partition("?")[2]
            part = f"/{place.part}" if place.part else ""
            self.counted[f"{'WATCH' if is_watch else method} {place.kind.plural}{part}"] += 1
        if self.faults.is_away:
            return None
        self.faults.before(f"{method} {target}")
        try:
            if token != f"Bearer {self.token}":
                raise ApiFailure(401, "Unauthorized", "Unauthorized")
            planted = self.faults.of(method, target)
            if planted is not None and not planted.is_done:
                return _planted(planted)
            answer = self._calls.answer(method, target, kind_of_body, body)
            return answer if planted is None else _planted(planted)
        except ApiFailure as failure:
            return Answer(failure.status, msgspec.json.encode(failure.body()))

    @contextlib.contextmanager
    def following(self, watch: Watch) -> Iterator[None]:
        """Has a watch end with the server."""
        self._watches.add(watch)
        try:
            yield
        finally:
            watch.close()
            self._watches.discard(watch)


def _planted(planted: Planted) -> Answer | None:
    if planted.status == CUT:
        return None
    reason = HTTPStatus(planted.status).phrase.title().replace(" ", "")
    if planted.status == HTTPStatus.GONE:
        reason = "Expired"
    failure = ApiFailure(planted.status, reason, "planted")
    return Answer(planted.status, msgspec.json.encode(failure.body()))


class _TlsServer(ThreadingHTTPServer):
    """Knows its connections, so that it can cut them; their threads make the handshakes."""

    request_queue_size = _QUEUE

    def __init__(self, api: SimulatedApiServer, context: ssl.SSLContext) -> None:
        self._context = context
        self._connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", api.port), _handler(api))

    def get_request(self) -> tuple[socket.socket, Any]:
        plain, address = self.socket.accept()
        plain.settimeout(_HANDSHAKE_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wrapped = self._context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
        self._connections.add(wrapped)
        return wrapped, address

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def cut_all(self) -> None:
        for each in tuple(self._connections):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Leaves what a client or a cut connection did."""


def _handler(api: SimulatedApiServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 0

        def setup(self) -> None:
            self.request.do_handshake()
            self.request.settimeout(None)
            super().setup()

        def do_any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length) if length else b""
            path, mark, query = self.path.partition("?")
            target = urllib.parse.unquote(path) + mark + query  # the query is decoded in its parts
            token = self.headers.get("Authorization", "")
            kind_of_body = self.headers.get("Content-Type", "")
            answer = api.handle(self.command, target, token, kind_of_body, body)
            if answer is None:
                self._cut()
            elif answer.watch is not None:
                self._follow(answer.watch)
            else:
                self._send(answer)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_any  # noqa: N815

        def _cut(self) -> None:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

        def _send(self, answer: Answer) -> None:
            head = (
                f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}\r\n"
                "Content-Type: application/json\r\n"
                f"Content-Length: {len(answer.body)}\r\n\r\n"
            )
            self.wfile.write(head.encode() + answer.body)

        def _follow(self, watch: Watch) -> None:
            query = dict(urllib.parse.parse_qsl(self.path.partition("?")[2]))
            asked_s = float(query.get("timeoutSeconds") or api.most_watch_s)
            wants = query.get("allowWatchBookmarks") in ("1", "true", "True")
            with api.following(watch):
                self.wfile.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                    b"Transfer-Encoding: chunked\r\n\r\n"
                )
                every_s = api.bookmark_every_s if wants else None
                for chunk in watch.chunks(min(asked_s, api.most_watch_s), every_s):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            if watch.is_cut:
                self._cut()
            else:
                self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: object) -> None:
            pass

    return Handler
