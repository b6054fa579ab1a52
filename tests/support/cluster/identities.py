"""Who the parts of a cluster are to its API server: certificate, tokens, kubeconfigs."""

import csv
import json
import subprocess
from pathlib import Path

from support.node.init import ADDRESS, HOST_NAME

PORT = 6443
#: The service of the API server.
API_SERVICE = "10.96.0.1"
ADMIN = "admin"
#: User and groups of each part.
_USERS = {
    ADMIN: ("admin", "system:masters"),
    "kube-controller-manager": ("system:kube-controller-manager", ""),
    "kube-scheduler": ("system:kube-scheduler", ""),
    "kube-proxy": ("system:kube-proxy", ""),
    "kubelet": (f"system:node:{HOST_NAME}", "system:nodes"),
}


def write(base: Path) -> None:
    """Writes ``api.crt``, which is its own authority, ``api.key``, ``tokens.csv``, kubeconfigs."""
    names = f"IP:{ADDRESS},IP:{API_SERVICE},IP:127.0.0.1,DNS:kubernetes.default.svc"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=api", "-addext", f"subjectAltName={names}",
         "-keyout", str(base / "api.key"), "-out", str(base / "api.crt")],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    with open(base / "tokens.csv", "w", newline="") as file:
        rows = ((token(part), user, f"uid-{part}", groups)
                for part, (user, groups) in _USERS.items())  # fmt: skip
        csv.writer(file).writerows(rows)
    for part in _USERS:
        kubeconfig(base, part).write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "here", "cluster": {
                "server": f"https://{ADDRESS}:{PORT}",
                "certificate-authority": str(base / "api.crt")}}],
            "users": [{"name": part, "user": {"token": token(part)}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": part}}],
        }))  # fmt: skip


def token(part: str) -> str:
    """Returns a part's token."""
    return f"token-of-{part}"


def kubeconfig(base: Path, part: str) -> Path:
    """Returns where a part's kubeconfig is."""
    return base / f"{part}.kubeconfig"
