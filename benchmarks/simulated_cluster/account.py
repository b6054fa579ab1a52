"""The service account of a pod, and in it the certificate of the API server that it trusts."""

import shutil
import subprocess
from pathlib import Path

from libvgpu.errors import VgpuError

TOKEN = "a-token"


def make_account(base: Path, namespace: str = "") -> Path:
    """Makes the directory of a service account below ``base``, and in it the server's certificate.

    Args:
        namespace: of the account; empty: its file does not say.

    Raises:
        VgpuError: openssl is not installed.
    """
    account = base / "serviceaccount"
    account.mkdir()
    make_certificate(account / "ca.crt", account / "server.key")
    (account / "token").write_text(TOKEN + "\n")
    if namespace:
        (account / "namespace").write_text(namespace)
    return account


def make_certificate(certificate: Path, key: Path) -> None:
    """Writes a certificate for this machine that vouches for itself.

    Raises:
        VgpuError: openssl is not installed.
    """
    tool = shutil.which("openssl")
    if tool is None:
        raise VgpuError("openssl, which makes certificates of servers, is not installed")
    subprocess.run(
        [tool, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=server",
         "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost",
         "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
