"""Both directions of a connection with a deadline: a byte now and then keeps no connection open,
and a head takes no more memory than heads need.

Of one thread, the connection's own.
"""

import http.client
import io
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_PIECE_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Pace:
    """How slowly bytes may come or go.

    Attributes:
        grace_s: before a rate is asked for.
        bytes_s: the least rate, on average since the begin.
        most_s: in which all of it must be through, at whatever rate.
    """

    grace_s: float
    bytes_s: int
    most_s: float

    def allows_s(self, count: int) -> float:
        """Returns by when, after the begin, more than ``count`` bytes must be through."""
        return min(self.most_s, self.grace_s + count / self.bytes_s)


class HeadTooLong(http.client.HTTPException):
    """The head of a call is longer than any that is honest."""


class TimedReader(io.RawIOBase):
    """The bytes of a connection, for an `io.BufferedReader`.

    A read after the deadline raises `TimeoutError`, and so does one that waits until then.
    One of more than a head may have raises `HeadTooLong`.
    """

    def __init__(
        self,
        connection: socket.socket,
        clock: Callable[[], float],
        began: Callable[[], None] = lambda: None,
    ) -> None:
        """Reads nothing; the other methods say how long to wait.

        Args:
            began: told when the first byte of a call has come.
        """
        self._connection, self._clock, self._began = connection, clock, began
        self._since_s, self._count = 0.0, 0
        self._pace = Pace(0.0, 1, 0.0)
        self._head_s: float | None = None
        self._head_bytes: int | None = None

    def expect_head(self, first_s: float, head_s: float, head_bytes: int) -> None:
        """Allows ``first_s`` until the next byte, and from then on ``head_s`` for all of a head.

        Args:
            head_bytes: it may have about so many; what the reader reads ahead counts, too.
        """
        self._begin(Pace(first_s, 1, first_s))
        self._head_s, self._head_bytes = head_s, head_bytes

    def expect_body(self, pace: Pace) -> None:
        """Allows what a pace does for all that comes from now on."""
        self._begin(pace)
        self._head_bytes = None

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Reads what is there, or waits for it."""
        end_s = self._since_s + self._pace.allows_s(self._count)
        _set_timeout(self._connection, end_s - self._clock())
        count = self._connection.recv_into(buffer)
        self._count += count
        if self._head_bytes is not None and self._count > self._head_bytes:
            raise HeadTooLong(f"at most {self._head_bytes} bytes are read")
        if self._head_s is not None and count:
            self._begin(Pace(self._head_s, 1, self._head_s))
            self._began()
        return count

    def _begin(self, pace: Pace) -> None:
        self._pace, self._since_s, self._count, self._head_s = pace, self._clock(), 0, None


class TimedWriter(io.RawIOBase):
    """The other direction, for an `io.BufferedWriter`."""

    def __init__(self, connection: socket.socket, clock: Callable[[], float], pace: Pace) -> None:
        """Writes nothing yet."""
        self._connection, self._clock, self._pace = connection, clock, pace
        self._since_s: float | None = None
        self._count = 0

    def begin(self) -> None:
        """Counts time and bytes from the next write on."""
        self._since_s, self._count = None, 0

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: Any) -> int:
        """Writes some of it, or waits until it can."""
        now_s = self._clock()
        if self._since_s is None:
            self._since_s = now_s
        _set_timeout(self._connection, self._since_s + self._pace.allows_s(self._count) - now_s)
        with memoryview(data) as view:
            count = self._connection.send(view.cast("B")[:_PIECE_BYTES])
        self._count += count
        return count


def _set_timeout(connection: socket.socket, left_s: float) -> None:
    if left_s <= 0:
        raise TimeoutError("the client took too long")
    connection.settimeout(left_s)
