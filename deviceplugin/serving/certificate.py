"""A server's TLS certificate, and whose clients it knows; both may be replaced while it serves.

A Secret's volume follows the Secret, so the files change in place. Who accepts connections asks for
the context of each one; a certificate that cannot be read leaves the one before in use.
"""

import logging
import ssl
from pathlib import Path

from deviceplugin.log import event
from libvgpu.errors import UsageError

CERTIFICATE, KEY = "tls.crt", "tls.key"
Identity = tuple[tuple[int, int, int], ...]


class Certificate:
    """The certificate in force: ``tls.crt`` and ``tls.key`` of a directory.

    Of one thread.
    """

    def __init__(self, directory: Path, client_ca: Path | None = None) -> None:
        """Reads it.

        Args:
            client_ca: PEM of the authorities that must have signed a client's certificate; None
                where nobody asks who it is.

        Raises:
            OSError: it is not there (`ssl.SSLError` is one), or is none.
        """
        self._files = (directory / CERTIFICATE, directory / KEY)
        self._client_ca = client_ca
        self._identity = self._look()
        self._context = self._load()

    @property
    def knows_clients(self) -> bool:
        """Whoever gets through a handshake has shown a certificate."""
        return self._client_ca is not None

    def context(self) -> ssl.SSLContext:
        """Returns what new connections use."""
        try:
            identity = self._look()
            if identity != self._identity:
                self._identity = identity
                self._context = self._load()
                event(logging.INFO, "new certificate in use", file=self._files[0])
        except OSError as error:
            event(logging.ERROR, "the new certificate cannot be used", reason=str(error))
        return self._context

    def _look(self) -> Identity:
        more = () if self._client_ca is None else (self._client_ca,)
        stats = [file.stat() for file in (*self._files, *more)]
        return tuple((s.st_mtime_ns, s.st_size, s.st_ino) for s in stats)

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self._files)
        if self._client_ca is not None:
            context.load_verify_locations(self._client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def check_probes(client_ca: Path | None, probe_address: str) -> None:
    """Checks that who must show a certificate is not probed without one.

    Raises:
        UsageError: there is no port for those who have none.
    """
    if client_ca is not None and not probe_address:
        raise UsageError("--client-ca needs --probe-address: a kubelet shows no certificate")
