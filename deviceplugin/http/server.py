"""HTTP on the agent's sockets, served by waitress: requests are rare, short and bounded.

For each socket one thread reads and writes every connection without blocking, and hands a request
that is whole to one of `_THREADS` more. So a client that sends slowly keeps nobody waiting. What a
request may be long and how many connections there may be is bounded; a connection that says nothing
for `REQUEST_TIMEOUT_S` is closed. `_Channel` adds what waitress leaves open: a client that sends a
byte now and then is closed too, a new client is let in where every place is taken, and of several
requests that come at once the first is answered.

A socket has threads and places of its own: a flood of the address that scrapes use does not reach
the socket of `vgpuctl`. Probes share that address, but neither thread nor queue (`_Dispatcher`): a
kubelet restarts an agent that answers late. `listen` before `start`; handlers must not block for
long.
"""

import logging
import socket
import threading
from collections.abc import Container
from typing import Any
from wsgiref.types import WSGIApplication

from waitress import wasyncore
from waitress.channel import HTTPChannel
from waitress.server import BaseWSGIServer, create_server
from waitress.task import ThreadedTaskDispatcher

REQUEST_TIMEOUT_S = 3
MOST_CONNECTIONS = 64
HEAD_BYTES = 8 << 10
BODY_BYTES = 4 << 10
_THREADS = 2
#: Requests that wait for one of these; what comes then is closed, so that places are left.
_MOST_QUEUED = 16
#: Connections that are answered just now, and those about to be closed.
_SPARE_CONNECTIONS = 16
#: Larger than every page, since beyond it waitress writes to a temporary file.
_ANSWER_BYTES = 16 << 20
_CHECK_EVERY_S = 1


class _Channel(HTTPChannel):
    """A connection that has `REQUEST_TIMEOUT_S` for a whole request, and may cost the oldest its
    place.
    """

    # The type stubs of waitress leave these out, or have other types.
    requests: Any
    requests_lock: threading.Lock
    _has_dropped = False

    def __init__(self, server: Any, *args: Any, **more: Any) -> None:
        super().__init__(server, *args, **more)
        idle = [c for c in server.active_channels.values() if not (c.requests or c.will_close)]
        if len(idle) > MOST_CONNECTIONS:
            idle[0].will_close = True

    def handle_read(self) -> None:
        quiet_since = self.last_activity
        super().handle_read()
        if self.request is not None:  # a part of a request is no sign of life
            self.last_activity = quiet_since

    def received(self, data: bytes) -> bool:
        """Takes one request at a time: with many at once a client that reads no answers has more of
        them waiting than are kept, and a thread would wait with them. The others cost the
        connection.
        """
        taken = super().received(data)
        with self.requests_lock:
            for more in self.requests[1:]:
                more.close()
                self.requests.remove(more)
                self._has_dropped = True
            self._close_if_dropped()
        return bool(taken)

    def service(self) -> None:
        super().service()
        with self.requests_lock:
            self._close_if_dropped()
        if self._has_dropped and self.connected:
            self.server.pull_trigger()

    def _close_if_dropped(self) -> None:
        if self._has_dropped and not self.requests:
            self.close_when_flushed = True


class _Dispatcher(ThreadedTaskDispatcher):
    """Threads with a queue, and one with a queue of its own for requests of urgent paths."""

    def __init__(self, urgent: Container[str]) -> None:
        super().__init__()
        self._urgent_paths = urgent
        self._urgent = ThreadedTaskDispatcher()
        self.set_thread_count(_THREADS)

    def set_thread_count(self, count: int) -> None:
        super().set_thread_count(count)
        self._urgent.set_thread_count(min(count, 1))

    def add_task(self, task: Any) -> None:
        """Takes a connection whose first request is whole."""
        if getattr(task.requests[0], "path", "") in self._urgent_paths:
            self._urgent.add_task(task)
        elif len(self.queue) >= _MOST_QUEUED:
            task.cancel()
        else:
            super().add_task(task)

    def shutdown(self, cancel_pending: bool = True, timeout: int = 5) -> bool:
        super().shutdown(cancel_pending, timeout)
        return self._urgent.shutdown(cancel_pending, timeout)


class _Listener:
    """One socket, its loop and its threads."""

    def __init__(
        self, listening: socket.socket, app: WSGIApplication, urgent: Container[str]
    ) -> None:
        self._map: dict[int, Any] = {}  # what the loop serves: it ends when this is empty
        self._served: dict[int, Any] = {}  # what it served when it ended
        server = create_server(
            app,
            self._map,
            _dispatcher=_Dispatcher(urgent),
            sockets=[listening],
            ident=None,  # nobody needs to know what serves
            connection_limit=MOST_CONNECTIONS + _SPARE_CONNECTIONS,
            channel_timeout=REQUEST_TIMEOUT_S,
            cleanup_interval=_CHECK_EVERY_S,
            asyncore_loop_timeout=_CHECK_EVERY_S,
            asyncore_use_poll=True,  # select() knows 1024 descriptors, and an agent may have more
            max_request_header_size=HEAD_BYTES,
            max_request_body_size=BODY_BYTES + 1,  # waitress refuses from this size on
            outbuf_overflow=_ANSWER_BYTES,
            log_socket_errors=False,  # clients may go away
        )
        assert isinstance(server, BaseWSGIServer)  # others serve several sockets
        server.channel_class = _Channel
        self._server = server
        self._trigger: Any = server.trigger  # its type stub says int
        self._thread = threading.Thread(target=self._server.run, name="http", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        # First the threads that answer: they wake the loop, whose descriptors are closed last. A
        # loop that somebody woke a moment ago may already be over before the trigger is pulled.
        self._server.task_dispatcher.shutdown()
        if self._thread.is_alive():
            self._trigger.pull_trigger(self._end_loop)
            self._thread.join()
        else:
            self._end_loop()
        wasyncore.close_all(self._served, ignore_all=True)

    def _end_loop(self) -> None:
        self._served.update(self._map)
        self._map.clear()


class HttpServer:
    """Serves every socket given to it."""

    def __init__(self) -> None:
        """Serves nothing yet."""
        self._listeners: list[_Listener] = []
        # It warns of every request that has to wait for a thread; a scrape is no matter.
        logging.getLogger("waitress.queue").setLevel(logging.ERROR)

    def listen(
        self, listening: socket.socket, app: WSGIApplication, urgent: Container[str] = ()
    ) -> None:
        """Serves ``listening``, which is closed by `stop`, with ``app``.

        Args:
            urgent: paths whose requests wait for no others; their handlers return at once.
        """
        self._listeners.append(_Listener(listening, app, urgent))

    def start(self) -> None:
        """Starts the threads."""
        for listener in self._listeners:
            listener.start()

    def stop(self) -> None:
        """Ends threads and connections, and closes the sockets."""
        for listener in self._listeners:
            listener.stop()
