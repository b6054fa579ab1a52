"""HTTP over a Unix socket: the agent's, and that of `kubectl proxy`."""

import http.client
import socket
from pathlib import Path


class UnixConnection(http.client.HTTPConnection):
    """One connection; each call of the system has the timeout."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path, self._timeout_s = path, timeout_s

    def connect(self) -> None:
        """Connects."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self._timeout_s)
        self.sock.connect(str(self._path))
