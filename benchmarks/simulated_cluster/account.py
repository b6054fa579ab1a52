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
    tool = shutil.which("openssl")
    if tool is None:
        raise VgpuError("openssl, which makes the API server's certificate, is not installed")
    account = base / "serviceaccount"
    account.mkdir()
    subprocess.run(
        [tool, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=api", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(account / "server.key"), "-out", str(account / "ca.crt")],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    (account / "token").write_text(TOKEN + "\n")
    if namespace:
        (account / "namespace").write_text(namespace)
    return account
