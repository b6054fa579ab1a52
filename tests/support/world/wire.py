"""gRPC without a connection: `grpc.server` and `grpc.insecure_channel` of a world.

Messages go as bytes, as over a socket. Each call runs in a thread of the server's process; it is
lost where that process is killed, or its server ends. What the agent and the kubelet stand-in use
of gRPC is here, and nothing else. A socket is a name in the file system, without anybody behind it.
"""

import os
import stat
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc

from .one_failure import OneFailure
from .turns import Process, Turn, Turns

#: How long a call is on its way, and a list.
_CALLED_AFTER_S = (0.0, 0.001, 0.001, 0.02)
_TOLD_AFTER_S = (0.0, 0.002, 0.02, 0.2)


class WireError(grpc.RpcError):  # type: ignore[misc]
    """A call that came to nothing."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self._code, self._details = code, details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details


class _AbortedError(Exception):
    """A handler ended its call with a sentence."""


class _Call:
    """One call: what a handler sees as its context, and what comes back."""

    def __init__(self, turns: Turns, server: "Server") -> None:
        self._turns, self.server = turns, server
        self.answers: deque[bytes] = deque()
        self.error: WireError | None = None
        self.is_over = False
        self._gone: list[Callable[[], None]] = []
        self._waiting: list[Turn] = []

    # ---- of the handler

    def abort(self, code: grpc.StatusCode, text: str) -> None:
        self.error = WireError(code, text)
        raise _AbortedError(text)

    def is_active(self) -> bool:
        return not self.is_over

    def add_callback(self, gone: Callable[[], None]) -> None:
        self._gone.append(gone)

    def answer(self, payload: bytes) -> None:
        self.answers.append(payload)
        self._tell()

    # ---- of both

    def end(self, error: WireError | None = None) -> None:
        """Nothing more comes."""
        if self.is_over:
            return
        self.is_over, self.error = True, self.error or error
        self.server.calls.pop(self, None)
        self._tell()
        if self._gone and not self.server.process.is_dead:
            # In a thread of the server, as there: its locks may be held by whoever ends the call.
            gone = list(self._gone)
            self._turns.begin(
                self.server.process, lambda: [each() for each in gone] and None, "call over"
            )

    def wait(self, until_s: float | None = None) -> None:
        """Waits until something has come."""
        while not self.answers and not self.is_over:
            if until_s is not None and self._turns.now_s >= until_s:
                self.end(WireError(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"))
                return
            self._waiting.append(self._turns.current)
            self._turns.wait(until_s)

    def _tell(self) -> None:
        for each in self._waiting:
            self._turns.wake(each)
        self._waiting.clear()


class _Ended:
    """What `Server.stop` returns."""

    def wait(self, timeout: float | None = None) -> bool:
        return True


class Server:
    """A server of the process that makes it."""

    def __init__(self, wire: "Wire") -> None:
        self._wire = wire
        self.process: Process = wire.turns.current.process
        self.calls: dict[_Call, None] = {}  # in the order in which they came
        self._handlers: list[Any] = []
        self._path = ""

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        self._handlers += handlers

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """They are among the generic ones, too."""

    def add_insecure_port(self, target: str) -> int:
        self._path = target.removeprefix("unix:")
        Path(self._path).unlink(missing_ok=True)
        os.mknod(self._path, stat.S_IFSOCK | 0o600)
        return 1

    def start(self) -> None:
        self._wire.listen(self._path, self)

    def stop(self, grace: float | None) -> _Ended:
        if not self._wire.turns.current.is_ending:
            self._wire.forget(self)
        return _Ended()

    def handler(self, method: str) -> Any:
        details = SimpleNamespace(method=method, invocation_metadata=())
        for each in self._handlers:
            found = each.service(details)
            if found is not None:
                return found
        raise WireError(grpc.StatusCode.UNIMPLEMENTED, f"there is no {method}")


class Channel:
    """A connection to a path."""

    def __init__(self, wire: "Wire", path: str) -> None:
        self._wire, self._path = wire, path
        self._calls: list[_Call] = []

    def unary_unary(
        self, method: str, request_serializer: Any, response_deserializer: Any, **_: Any
    ) -> Any:
        def call(
            request: Any, timeout: float | None = None, wait_for_ready: bool = False, **_: Any
        ) -> Any:
            turns = self._wire.turns
            until_s = None if timeout is None else turns.now_s + timeout
            under_way = self._begin(method, request_serializer(request), until_s, wait_for_ready)
            under_way.wait(until_s)
            if under_way.answers:
                under_way.end()
                return response_deserializer(under_way.answers[0])
            raise under_way.error or WireError(grpc.StatusCode.INTERNAL, "no answer")

        return call

    def unary_stream(
        self, method: str, request_serializer: Any, response_deserializer: Any, **_: Any
    ) -> Any:
        def call(request: Any, timeout: float | None = None, **_: Any) -> Iterator[Any]:
            under_way = self._begin(method, request_serializer(request), None, False)
            while True:
                under_way.wait()
                self._wire.turns.sleep(self._wire.turns.chance.choice(_TOLD_AFTER_S))
                if not under_way.answers:
                    break
                yield response_deserializer(under_way.answers.popleft())
            if under_way.error is not None:
                raise under_way.error

        return call

    def close(self) -> None:
        for each in self._calls:
            each.end(WireError(grpc.StatusCode.CANCELLED, "Channel closed!"))
        self._calls.clear()

    def _begin(
        self, method: str, payload: bytes, until_s: float | None, waits_for_ready: bool
    ) -> _Call:
        turns = self._wire.turns
        if self._wire.failure is not None:
            try:
                self._wire.failure.meet("gRPC", self._path, named=False)
            except OSError as error:
                raise WireError(grpc.StatusCode.UNAVAILABLE, str(error)) from None
        turns.sleep(turns.chance.choice(_CALLED_AFTER_S))
        server = self._wire.server_at(self._path, until_s, waits_for_ready)
        under_way = _Call(turns, server)
        server.calls[under_way] = None
        handler = server.handler(method)
        self._calls = [each for each in self._calls if not each.is_over]
        self._calls.append(under_way)
        name = method.rpartition("/")[2]
        turns.begin(server.process, lambda: self._serve(under_way, handler, payload), name)
        return under_way

    def _serve(self, under_way: _Call, handler: Any, payload: bytes) -> None:
        deserialize = handler.request_deserializer or (lambda data: data)
        serialize = handler.response_serializer or (lambda answer: answer)
        try:
            if handler.response_streaming:
                for message in handler.unary_stream(deserialize(payload), under_way):
                    under_way.answer(serialize(message))
            else:
                answer = serialize(handler.unary_unary(deserialize(payload), under_way))
                if under_way.server.process is not self._wire.turns.test:
                    self._wire.note(answer)
                under_way.answer(answer)
                return
        except _AbortedError:
            pass
        except Exception as error:
            under_way.end(WireError(grpc.StatusCode.UNKNOWN, f"Exception calling: {error!r}"))
        under_way.end()


class Wire:
    """All servers of a world.

    Attributes:
        failure: is asked before each call, where there is one.
    """

    failure: OneFailure | None = None

    def __init__(self, turns: Turns, note: Callable[[bytes], object]) -> None:
        """Has no server.

        Args:
            note: is given each answer of a server that is not the test's own.
        """
        self.turns, self.note = turns, note
        self._servers: dict[str, Server] = {}
        self._waiting: list[Turn] = []

    def server(self, pool: Any, options: Any = None, **_: Any) -> Server:
        return Server(self)

    def insecure_channel(self, target: str, options: Any = None, **_: Any) -> Channel:
        return Channel(self, target.removeprefix("unix:"))

    def listen(self, path: str, server: Server) -> None:
        self._servers[path] = server
        for each in self._waiting:
            self.turns.wake(each)
        self._waiting.clear()

    def forget(self, server: Server) -> None:
        """A server has ended; its calls are lost."""
        self._servers = {p: each for p, each in self._servers.items() if each is not server}
        for each in list(server.calls):
            each.end(WireError(grpc.StatusCode.UNAVAILABLE, "Socket closed"))

    def lose(self, process: Process) -> None:
        """A process has ended, and its servers with it."""
        for each in [each for each in self._servers.values() if each.process is process]:
            self.forget(each)

    def server_at(self, path: str, until_s: float | None, waits_for_ready: bool) -> Server:
        while True:
            server = self._servers.get(path)
            if server is not None and os.path.exists(path):
                return server
            if not waits_for_ready:
                raise WireError(grpc.StatusCode.UNAVAILABLE, f"failed to connect to {path}")
            if until_s is not None and self.turns.now_s >= until_s:
                raise WireError(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
            self._waiting.append(self.turns.current)
            self.turns.wait(until_s)
