"""The few calls to the Kubernetes API server that the agent makes, with its service account.

Only the standard library: one TLS connection a call, which is rare. Token and CA are read anew each
time, since the kubelet renews them in place.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from libvgpu.errors import VgpuError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT_S = 5.0
_MOST_BYTES = 1 << 20
_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"


class ApiUnreachable(VgpuError):  # noqa: N818 - it is the server that is unreachable
    """The API server did not answer; it may later."""


@dataclass(frozen=True, slots=True)
class ApiServer:
    """Where the API server is and how it knows us.

    Attributes:
        account: directory with ``token`` and ``ca.crt``.
    """

    host: str
    port: int
    account: Path

    @classmethod
    def from_environment(
        cls, environ: Mapping[str, str], account: Path = SERVICE_ACCOUNT
    ) -> "ApiServer | None":
        """Returns the cluster's API server, None outside a pod or without a service account."""
        host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
        if not host or not (account / "token").is_file() or not (account / "ca.crt").is_file():
            return None
        return cls(host, int(port) if port and port.isdecimal() else 443, account)

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> tuple[int, Any]:
        """Makes one call and returns status and decoded answer (None where it is no JSON).

        Raises:
            ApiUnreachable: there was no answer.
        """
        import http.client  # late, as ssl is: 5 MiB that an agent outside a cluster does without
        import ssl

        headers = {
            "Accept": _METADATA_ONLY if method == "GET" else "application/json",
            "User-Agent": "vgpu-agent",
        }
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = content_type
        try:
            headers["Authorization"] = f"Bearer {(self.account / 'token').read_text().strip()}"
            context = ssl.create_default_context(cafile=str(self.account / "ca.crt"))
            connection = http.client.HTTPSConnection(
                self.host, self.port, timeout=TIMEOUT_S, context=context
            )
            try:
                connection.request(method, path, data, headers)
                answer = connection.getresponse()
                content = answer.read(_MOST_BYTES)
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:  # ssl.SSLError is an OSError
            raise ApiUnreachable(
                f"the API server {self.host}:{self.port} does not answer: {error}"
            ) from None
        try:
            return answer.status, json.loads(content)
        except ValueError:
            return answer.status, None
