"""A call over HTTP and its answer, as values, and what a server allows of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

#: Pages that are answered at once, whatever else is asked; a kubelet restarts who answers late.
PROBES = ("/healthz", "/readyz")
JSON, TEXT = "application/json", "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Call:
    """What a client asks.

    Attributes:
        path: without the query.
        deadline_s: on the monotonic clock; nobody waits for the answer after it.
        headers: by their names in lower case.
    """

    path: str
    body: bytes = b""
    deadline_s: float = float("inf")
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """What it is told."""

    body: bytes
    status: int = HTTPStatus.OK
    kind: str = JSON


class CallRefused(Exception):  # noqa: N818 - it is the call that was refused
    """A call that is not answered; the text says why.

    Attributes:
        status: of HTTP.
    """

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


#: By method and path.
Routes = Mapping[tuple[str, str], Callable[[Call], Answer]]
#: Told of each call but of pages: its path (empty where no route has it), status and seconds.
Told = Callable[[str, int, float], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server allows.

    Attributes:
        body_bytes: of one call.
        bodies_bytes: of all calls that are read or answered at one time.
        calls: that are answered at one time, of those with a body.
        pages: the same of those that are read (GET), other than `PROBES`.
        connections: at one time; for a new one another has to go (`call_places`).
        idle_s: how long a connection may say nothing between calls. More than the 90 seconds for
            which Go's clients keep theirs, so that it is they who close.
        head_s: how long a handshake may take, the head of a call, and the first byte of a new
            connection.
        read_s: how long a body may take to arrive, and an answer to be taken, at most.
        grace_s, bytes_s: after this time both must have an average rate.
        answer_s: after which nobody waits for the answer.
    """

    body_bytes: int = 16 << 20
    bodies_bytes: int = 96 << 20
    calls: int = 128
    pages: int = 16
    connections: int = 512
    idle_s: float = 120.0
    head_s: float = 5.0
    read_s: float = 10.0
    grace_s: float = 2.0
    bytes_s: int = 64 << 10
    answer_s: float = 5.0

    @property
    def source_connections(self) -> int:
        """Connections of one source address at one time; the rest is kept for others.

        Not fewer, since a network may show all clients of a node, or of a cluster, as one address.
        """
        return max(1, self.connections * 3 // 4)
