"""kube-scheduler's end of an extender: its calls in the v1 wire format, as bytes or over HTTP.

The keys are capitalised since Go's structs of that format have no names of their own for JSON.
"""

import http.client
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

#: Sends a body to a verb and returns the answer's.
Send = Callable[[str, bytes], bytes]
_TIMEOUT_S = 30.0


class ExtenderFailed(Exception):  # noqa: N818 - it is the extender that failed
    """A call was not answered, or with an error."""


@dataclass(frozen=True, slots=True)
class Filtered:
    """Which nodes passed, and why the others did not."""

    passed: Sequence[str]
    failed: Mapping[str, str] = field(default_factory=dict)
    never: Mapping[str, str] = field(default_factory=dict)


class ExtenderClient:
    """Makes the calls; safe to use from several threads if ``send`` is."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def filter(self, pod: Mapping[str, Any], nodes: Sequence[str]) -> Filtered:
        """Asks which nodes fit.

        Raises:
            ExtenderFailed: there is no answer, or it is an error.
        """
        answer = self._ask("filter", {"Pod": pod, "NodeNames": nodes})
        if answer.get("Error"):
            raise ExtenderFailed(answer["Error"])
        return Filtered(
            answer.get("NodeNames") or (),
            answer.get("FailedNodes") or {},
            answer.get("FailedAndUnresolvableNodes") or {},
        )

    def prioritize(self, pod: Mapping[str, Any], nodes: Sequence[str]) -> dict[str, int]:
        """Asks how good nodes are.

        Raises:
            ExtenderFailed: there is no answer.
        """
        answer = self._ask("prioritize", {"Pod": pod, "NodeNames": nodes})
        return {each["Host"]: each["Score"] for each in answer or ()}

    def bind(self, pod: Mapping[str, Any], node: str) -> None:
        """Asks to bind.

        Raises:
            ExtenderFailed: it is not bound, or nobody knows.
        """
        metadata = pod["metadata"]
        answer = self._ask(
            "bind",
            {
                "PodName": metadata["name"],
                "PodNamespace": metadata["namespace"],
                "PodUID": metadata["uid"],
                "Node": node,
            },
        )
        if answer.get("Error"):
            raise ExtenderFailed(answer["Error"])

    def _ask(self, verb: str, arguments: Mapping[str, Any]) -> Any:
        try:
            return msgspec.json.decode(self._send(verb, msgspec.json.encode(arguments)))
        except (OSError, http.client.HTTPException, msgspec.MsgspecError) as error:
            raise ExtenderFailed(f"{verb}: {error!r}") from error


class HttpSender:
    """Sends over HTTP/1.1, with a connection that is kept alive for each thread."""

    def __init__(
        self, host: str, port: int, prefix: str = "", tls: ssl.SSLContext | None = None
    ) -> None:
        """Connects lazily.

        Args:
            prefix: of the paths, with its slash.
            tls: None for HTTP without TLS.
        """
        self._where, self._prefix, self._tls = (host, port), prefix, tls
        self._local = threading.local()

    def __call__(self, verb: str, body: bytes) -> bytes:
        """Sends; a connection that ended meanwhile is made again once.

        Raises:
            OSError, http.client.HTTPException: there is no answer.
        """
        has_connection = getattr(self._local, "connection", None) is not None
        try:
            return self._try(verb, body)
        except (OSError, http.client.HTTPException):
            self.close()
            if not has_connection:
                raise
        return self._try(verb, body)

    def close(self) -> None:
        """Ends this thread's connection."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
        self._local.connection = None

    def _try(self, verb: str, body: bytes) -> bytes:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._connection()
            self._local.connection = connection
        headers = {"Content-Type": "application/json"}
        connection.request("POST", f"{self._prefix}/{verb}", body, headers)
        answer = connection.getresponse()
        content: bytes = answer.read()
        if answer.status != 200:
            raise http.client.HTTPException(f"status {answer.status}: {content[:200]!r}")
        return content

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(*self._where, timeout=_TIMEOUT_S)
        return http.client.HTTPSConnection(*self._where, timeout=_TIMEOUT_S, context=self._tls)
