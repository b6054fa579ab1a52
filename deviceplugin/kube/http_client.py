"""Clients of the API server: one for calls by their path, where lightkube has no fitting one.

A refused token is read again. A peer that is gone without a word is
noticed by the kernel's probes, within 25 s also where nobody writes, as in a watch.
"""

import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import httpx2
from lightkube.config.client_adapter import BearerTokenFileAuth

from deviceplugin import runtime

TIMEOUT_S = 5.0
#: After 25 s the kernel gives up a connection whose peer acknowledges nothing.
_IDLE_S, _INTERVAL_S, _PROBES = 10, 5, 3
_MOST_CONNECTIONS = 128
_Client = TypeVar("_Client")


class KeptClient(Generic[_Client]):
    """A client, for as long as the CA that it trusts is the present one. Any thread."""

    def __init__(self, certificate: Path, make: Callable[[], _Client]) -> None:
        """Makes none yet.

        Args:
            certificate: file of the CA, which the kubelet replaces.
            make: a client that trusts it.
        """
        self._certificate, self._make = certificate, make
        self._lock = runtime.lock()
        self._client: _Client | None = None
        self._ca: tuple[int, int] | None = None

    def get(self) -> _Client:
        """Returns a client that trusts the present CA.

        Raises:
            OSError: the CA cannot be read.
        """
        with self._lock:
            status = self._certificate.stat()
            ca = status.st_ino, status.st_mtime_ns
            if self._client is None or self._ca != ca:
                # The one before is left to its users; another thread may be in a call with it.
                self._client = self._make()
                self._ca = ca
            return self._client


def make_http_client(where: str, account: Path) -> httpx2.Client:
    """Returns a client.

    Args:
        where: host and port.
        account: directory with ``token`` and ``ca.crt``.
    """
    return httpx2.Client(
        base_url=f"https://{where}",
        auth=BearerTokenFileAuth(str(account / "token")),
        timeout=httpx2.Timeout(TIMEOUT_S),
        trust_env=False,
        # Lists are large and come over the cluster's own network: packing them costs more.
        headers={"Accept-Encoding": "identity", "Accept": "application/json"},
        transport=httpx2.HTTPTransport(
            verify=ssl.create_default_context(cafile=str(account / "ca.crt")),
            trust_env=False,
            limits=httpx2.Limits(max_connections=_MOST_CONNECTIONS, max_keepalive_connections=32),
            socket_options=[
                (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
                (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
                (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_S),
                (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _INTERVAL_S),
                (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES),
            ],
        ),
    )
