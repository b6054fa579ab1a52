"""What a client sends, read until a moment: a byte now and then keeps no connection open.

Of one thread, the connection's own.
"""

import io
import socket
import time
from typing import Any


class TimedReader(io.RawIOBase):
    """The bytes of a connection, for an `io.BufferedReader`.

    A read after the moment raises `TimeoutError`, and so does one that waits until then.
    """

    def __init__(self, connection: socket.socket) -> None:
        """Reads nothing; `expect_call` says how long to wait."""
        self._connection = connection
        self._end_s = 0.0
        self._call_s: float | None = None

    def expect_call(self, idle_s: float, call_s: float) -> None:
        """Allows ``idle_s`` until the next byte, and from then on ``call_s`` for all of a call."""
        self._end_s = time.monotonic() + idle_s
        self._call_s = call_s

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Reads what is there, or waits for it."""
        left_s = self._end_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the client took too long")
        self._connection.settimeout(left_s)
        count = self._connection.recv_into(buffer)
        if self._call_s is not None:
            self._end_s, self._call_s = time.monotonic() + self._call_s, None
        return count
