"""A stand-in API server that keeps objects of any kind, to be listed by page and watched.

Its own list and watch, and nothing more: resource versions, continue tokens that expire, watches
that end, break or are told nonsense.
"""

import json
import queue
import shutil
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from benchmarks.api_server import StandInApiServer


def make_list_watch_server(base: Path) -> "ListWatchServer":
    """Returns one that does not serve yet; skips the test where there is no openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the test's certificate, is not installed")
    return ListWatchServer(base)


_END, _BREAK = object(), object()


def _status(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "code": code, "message": message}


class ListWatchServer(StandInApiServer):
    """Serves every path of which objects were put.

    Attributes:
        gone_as_event: a version that is too old is told by an event of the watch, not by status.
        lists: parameters of each list that was asked for.
        watches: those of each watch.
        refuse_watches_with: the status of every watch, unless 0.
    """

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.gone_as_event = False
        self.lists: list[dict[str, str]] = []
        self.watches: list[dict[str, str]] = []
        self.refuse_watches_with = 0
        self.version = 100
        self._oldest = 0
        self._objects: dict[str, dict[str, dict[str, Any]]] = {}
        self._log: list[tuple[int, str, bytes]] = []
        self._streams: list[tuple[str, queue.Queue[Any]]] = []
        self._lock = threading.RLock()

    def put(self, path: str, name: str, body: dict[str, Any]) -> None:
        """Creates or replaces an object, and tells the watches."""
        with self._lock:
            known = self._objects.setdefault(path, {})
            self.version += 1
            metadata = {"name": name, **body.get("metadata", {})}
            metadata["resourceVersion"] = str(self.version)
            kind = "MODIFIED" if name in known else "ADDED"
            known[name] = {**body, "metadata": metadata}
            self._tell(path, kind, known[name])

    def delete(self, path: str, name: str) -> None:
        """Deletes an object, and tells the watches."""
        with self._lock:
            found = self._objects[path].pop(name)
            self.version += 1
            found["metadata"]["resourceVersion"] = str(self.version)
            self._tell(path, "DELETED", found)

    def _tell(self, path: str, kind: str, body: dict[str, Any]) -> None:
        line = json.dumps({"type": kind, "object": body}).encode() + b"\n"
        self._log.append((self.version, path, line))
        self.say(path, line)

    def say(self, path: str, line: bytes) -> None:
        """Sends bytes to all watches of a path."""
        with self._lock:
            for of, stream in self._streams:
                if of == path:
                    stream.put(line)

    def bookmark(self, path: str) -> None:
        """Tells all watches of a path the present version."""
        with self._lock:
            metadata = {"resourceVersion": str(self.version)}
            told = {"type": "BOOKMARK", "object": {"metadata": metadata}}
            self.say(path, json.dumps(told).encode() + b"\n")

    def end_watches(self, breaking: bool = False) -> None:
        """Ends all watches; or breaks them off."""
        with self._lock:
            for _, stream in self._streams:
                stream.put(_BREAK if breaking else _END)

    def compact(self) -> None:
        """Forgets all versions before the present one."""
        with self._lock:
            self.version += 1
            self._oldest = self.version
            self._log.clear()

    @property
    def open_watches(self) -> int:
        """How many watches are open."""
        with self._lock:
            return len(self._streams)

    def _list(self, path: str, params: dict[str, str]) -> tuple[int, dict[str, Any]]:
        with self._lock:
            self.lists.append(params)
            start, version = 0, self.version
            if params.get("continue"):
                version, start = map(int, params["continue"].split("-"))
                if version < self._oldest:
                    return 410, _status(410, "the continue token has expired")
            items = sorted(self._objects.get(path, {}).items())
            end = start + int(params.get("limit") or len(items) or 1)
            metadata = {"resourceVersion": str(version)}
            if end < len(items):
                metadata["continue"] = f"{version}-{end}"
            return 200, {"metadata": metadata, "items": [body for _, body in items[start:end]]}

    def _watch(self, path: str, params: dict[str, str]) -> queue.Queue[Any] | tuple[int, Any]:
        with self._lock:
            self.watches.append(params)
            if self.refuse_watches_with:
                return self.refuse_watches_with, _status(self.refuse_watches_with, "planted")
            version = int(params["resourceVersion"])
            stream: queue.Queue[Any] = queue.Queue()
            if version < self._oldest:
                gone = _status(410, f"too old resource version: {version}")
                if not self.gone_as_event:
                    return 410, gone
                stream.put(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
                stream.put(_END)
            for at, of, line in self._log:
                if at > version and of == path:
                    stream.put(line)
            self._streams.append((path, stream))
            return stream

    def stop(self) -> None:
        """Ends it and breaks off all watches."""
        self.end_watches(breaking=True)
        super().stop()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def do_any(self) -> None:
                length = int(self.headers.get("Content-Length", "0"))
                body = json.loads(self.rfile.read(length)) if length else None
                parts = urlsplit(self.path)
                params = {key: values[0] for key, values in parse_qs(parts.query).items()}
                token = self.headers.get("Authorization", "")
                is_followed = self.command == "GET" and parts.path in fake._objects
                if not is_followed or token != f"Bearer {fake.token}" or fake.refuse_with:
                    self._answer(*fake.answer(self.command, parts.path, token, body))
                elif "watch" not in params:
                    self._answer(*fake._list(parts.path, params))
                elif isinstance(found := fake._watch(parts.path, params), tuple):
                    self._answer(*found)
                else:
                    self._stream(found)

            do_GET = do_POST = do_PUT = do_PATCH = do_any  # noqa: N815

            def _answer(self, status: int, answer: Any) -> None:
                if not status:  # the connection breaks without an answer
                    self.close_connection = True
                    return
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def _stream(self, stream: queue.Queue[Any]) -> None:
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.flush()
                try:
                    while (line := stream.get()) not in (_END, _BREAK):
                        self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
                        self.wfile.flush()
                    if line is _END:
                        self.wfile.write(b"0\r\n\r\n")
                    else:
                        self.close_connection = True
                except OSError:
                    self.close_connection = True
                finally:
                    with fake._lock:
                        fake._streams[:] = [each for each in fake._streams if each[1] is not stream]

            def log_message(self, *_: object) -> None:
                pass

        return Handler
