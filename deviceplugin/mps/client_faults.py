"""Notices that a fault of one client ended the work of all clients of an MPS server.

Since Volta a fatal GPU fault does not end the server: every client that uses the GPU gets the
error, whoever caused it, and no new client is taken until they have ended. Meanwhile the server's
status is FAULT. Clients that end at once leave no trace of it but a line in the server's log, which
no container reaches. Neither says which client it was. Used by one thread.
"""

import os
from pathlib import Path

FAULT = "FAULT"
#: What the server's line about it has, in small letters.
_WORD = b"fatal gpu"
_LOG_MOST = 256 << 10


class ClientFaults:
    """The faults of one server's clients since `begin`."""

    def __init__(self, log: Path) -> None:
        """Reads nothing yet.

        Args:
            log: the server's.
        """
        self._log, self._read_to, self._is_under_way = log, 0, False

    def begin(self) -> None:
        """Leaves out what the log says so far."""
        self._read_to, self._is_under_way = self._size(), False

    def look(self, status: str) -> bool:
        """Returns whether there was a fault that no earlier look has told.

        Args:
            status: of the server, as its daemon says it; empty where it does not.
        """
        is_now = status.strip() == FAULT
        is_new = (self._is_in_log() or is_now) and not self._is_under_way
        self._is_under_way = is_now
        return is_new

    def _is_in_log(self) -> bool:
        size = self._size()
        if size < self._read_to:  # somebody has cut it
            self._read_to = 0
        try:
            with open(self._log, "rb") as file:
                file.seek(max(self._read_to, size - _LOG_MOST))
                new = file.read(_LOG_MOST)
                whole = new.rfind(b"\n") + 1  # the rest of a line comes with the next look
                self._read_to = file.tell() - len(new) + whole
        except OSError:
            return False
        return _WORD in new[:whole].lower()

    def _size(self) -> int:
        try:
            return os.stat(self._log).st_size
        except OSError:
            return 0
