"""A client for calls to the API server by their path, where lightkube has no fitting one.

Safe to use from several threads. A changed CA makes a new client, a refused token is read again;
the one before is left to whoever is in a call with it. A peer that is gone without a word is
noticed by the kernel's probes, within 25 s also where nobody writes, as in a watch.
"""

import socket
import ssl
from pathlib import Path

import httpx2
from lightkube.config.client_adapter import BearerTokenFileAuth

from deviceplugin import runtime

TIMEOUT_S = 5.0
#: After 25 s the kernel gives up a connection whose peer acknowledges nothing.
_IDLE_S, _INTERVAL_S, _PROBES = 10, 5, 3
_MOST_CONNECTIONS = 128


class HttpClient:
    """Makes the client and keeps it."""

    def __init__(self, where: str, account: Path) -> None:
        """Makes none yet.

        Args:
            where: host and port.
            account: directory with ``token`` and ``ca.crt``.
        """
        self._where, self._account = where, account
        self._lock = runtime.lock()
        self._client: httpx2.Client | None = None
        self._ca: tuple[int, int] | None = None

    def get(self) -> httpx2.Client:
        """Returns a client that trusts the present CA.

        Raises:
            OSError: the CA cannot be read.
        """
        certificate = self._account / "ca.crt"
        with self._lock:
            status = certificate.stat()
            ca = status.st_ino, status.st_mtime_ns
            if self._client is None or self._ca != ca:
                self._client = self._make(certificate)
                self._ca = ca
            return self._client

    def _make(self, certificate: Path) -> httpx2.Client:
        return httpx2.Client(
            base_url=f"https://{self._where}",
            auth=BearerTokenFileAuth(str(self._account / "token")),
            timeout=httpx2.Timeout(TIMEOUT_S),
            trust_env=False,
            # Lists are large and come over the cluster's own network: packing them costs more.
            headers={"Accept-Encoding": "identity", "Accept": "application/json"},
            transport=httpx2.HTTPTransport(
                verify=ssl.create_default_context(cafile=str(certificate)),
                trust_env=False,
                limits=httpx2.Limits(
                    max_connections=_MOST_CONNECTIONS, max_keepalive_connections=32
                ),
                socket_options=[
                    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
                    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
                    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_S),
                    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _INTERVAL_S),
                    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES),
                ],
            ),
        )
