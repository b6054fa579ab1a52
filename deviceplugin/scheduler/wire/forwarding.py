"""Binds on the replica that may: one that does not lead passes the call on, once.

Schedulers keep a connection to whichever replica the Service gave them. The leader is reached at
the address in its Lease; with TLS it has to show a certificate for the name that all replicas have,
signed by the authority next to our own certificate (``ca.crt``; without one our own certificate
itself counts), and is shown ours, or that of a client. Safe to use from several threads.
"""

import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import httpx2

from deviceplugin.scheduler.binding.binder import BindFailed, BindOutcome
from deviceplugin.serving.certificate import CERTIFICATE, KEY

from .go_json import CallMalformed
from .kube_scheduler import error_of

#: Of a call that was passed on; whoever gets it passes it on no further.
FORWARDED = "x-vgpu-forwarded"
_TIMEOUT_S = 8.0
_CONNECT_S = 2.0
_MOST_CONNECTIONS = 64


class Forwarder:
    """Passes binds on to the leader."""

    def __init__(
        self, leader: Callable[[], str], tls: Path | None, name: str, shows: Path | None = None
    ) -> None:
        """Connects to nobody yet.

        Args:
            leader: returns host and port of the leader, empty where there is none.
            tls: directory of the certificate; None for HTTP without TLS.
            name: for which the leader's certificate must be.
            shows: directory of the certificate that the leader is shown; None: our own.
        """
        self._leader, self._tls, self._name = leader, tls, name
        self._shows = shows or tls
        self._lock = threading.Lock()
        self._client: httpx2.Client | None = None
        self._trusted = b""

    def bind(self, body: bytes) -> str:
        """Returns what the leader says to a bind; empty where the pod was bound.

        Args:
            body: of the call.

        Raises:
            BindFailed: there is no leader, or no answer of one.
        """
        address = self._leader()
        if not address:
            raise BindFailed(
                BindOutcome.NOT_NOW, "no replica binds now: none has been elected; try again"
            )
        scheme = "http" if self._tls is None else "https"
        try:
            answer = self._connected().post(
                f"{scheme}://{address}/bind",
                content=body,
                headers={FORWARDED: "1", "content-type": "application/json"},
                extensions={} if self._tls is None else {"sni_hostname": self._name},
            )
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise BindFailed(
                BindOutcome.UNKNOWN,
                f"the replica at {address}, which binds, does not answer: {error}",
            ) from None
        if answer.status_code != httpx2.codes.OK:
            raise BindFailed(
                BindOutcome.NOT_NOW,
                f"the replica at {address}, which binds, answers {answer.status_code}: "
                f"{answer.text[:300].strip()}",
            )
        try:
            return error_of(answer.content)
        except CallMalformed as error:
            raise BindFailed(BindOutcome.UNKNOWN, f"{address}: {error.message}") from None

    def _connected(self) -> httpx2.Client:
        """Returns a client that trusts the present authority.

        Raises:
            OSError: it cannot be read.
        """
        with self._lock:
            tls, shows = self._tls, self._shows
            trusted = _files(tls, shows) if tls and shows else b""
            if self._client is None or trusted != self._trusted:
                self._client = httpx2.Client(
                    verify=_context(tls, shows) if tls and shows else True,
                    timeout=httpx2.Timeout(_TIMEOUT_S, connect=_CONNECT_S),
                    limits=httpx2.Limits(max_connections=_MOST_CONNECTIONS),
                    trust_env=False,
                )
                self._trusted = trusted
            return self._client


def _authority(directory: Path) -> bytes:
    try:
        return (directory / "ca.crt").read_bytes()
    except FileNotFoundError:
        return (directory / CERTIFICATE).read_bytes()


def _files(directory: Path, shows: Path) -> bytes:
    """Returns by what a client differs from one of before."""
    return _authority(directory) + (shows / CERTIFICATE).read_bytes()


def _context(directory: Path, shows: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=_authority(directory).decode())
    # A certificate that is no authority, as without ca.crt, vouches for itself.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    context.load_cert_chain(shows / CERTIFICATE, shows / KEY)
    return context
