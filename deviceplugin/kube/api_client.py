"""The few calls to the Kubernetes API server that the agent makes, by lightkube.

Safe to use from several threads. The kubelet renews token and CA of the service account in place:
lightkube reads the token again when the server refuses it, and where the CA's file has changed a
new client is made.
"""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import msgspec
from lightkube import ApiError, Client, KubeConfig
from lightkube.config.models import Cluster, User
from lightkube.core.exceptions import ConfigError
from lightkube.models.meta_v1 import ObjectMeta, Status
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import Event, Node, Pod
from lightkube.types import PatchType

from libvgpu.decoding import json_decoder
from libvgpu.errors import VgpuError
from libvgpu.sizes import whole_number

from .http_client import TIMEOUT_S, KeptClient, make_http_client

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TRY_AGAIN = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
_Answer = TypeVar("_Answer")
#: What the server's answers are made into. lightkube has msgspec work a type out where the first
#: answer comes, and the first answers of several threads may come at once.
ANSWERS = (Event, Lease, Node, Pod, Status)
for _kind in ANSWERS:
    json_decoder(_kind)


class ApiUnreachable(VgpuError):  # noqa: N818 - it is the server that is unreachable
    """The API server did not answer, or could not; it may later."""


class ApiRefused(VgpuError):  # noqa: N818 - it is the call that was refused
    """The API server refused a call, and would again.

    Attributes:
        status: of HTTP.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ApiServer:
    """The API server of the cluster, as the agent's service account may use it.

    Attributes:
        where: host and port.
        http: for calls by their path (`raw_calls`).
    """

    def __init__(self, host: str, port: int, account: Path) -> None:
        """Connects lazily.

        Args:
            account: directory with ``token`` and ``ca.crt``.
        """
        self.where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._account, ca = account, account / "ca.crt"
        self.http = KeptClient(ca, lambda: make_http_client(self.where, account))
        self._client = KeptClient(ca, self._make_client)

    @property
    def namespace(self) -> str:
        """The agent's own, as its service account says; ``default`` where it does not."""
        try:
            return (self._account / "namespace").read_text().strip() or "default"
        except OSError:
            return "default"

    @classmethod
    def from_environment(
        cls, environ: Mapping[str, str], account: Path = SERVICE_ACCOUNT
    ) -> "ApiServer | None":
        """Returns the cluster's API server, None outside a pod or without a service account."""
        host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
        if not host or not (account / "token").is_file() or not (account / "ca.crt").is_file():
            return None
        number = whole_number(port or "")
        return cls(host, 443 if number is None else number, account)

    def pod(self, namespace: str, name: str) -> ObjectMeta | None:
        """Returns the metadata of a pod, None where there is no such pod.

        Raises:
            ApiUnreachable: there was no answer.
            ApiRefused: the agent may not ask.
        """
        try:
            found = self.ask(lambda client: client.get(Pod, name, namespace=namespace))
        except ApiRefused as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise
        return found.metadata or ObjectMeta()

    def node_versions(self, name: str) -> tuple[str, str]:
        """Returns what the kubelet reports of a Node: container runtime and its own version.

        The first as ``containerd://2.1.4``; empty where the Node does not say.

        Raises:
            ApiUnreachable: there was no answer.
            ApiRefused: the agent may not ask, or there is no such Node.
        """
        found = self.ask(lambda client: client.get(Node, name))
        info = found.status.nodeInfo if found.status else None
        return (info.containerRuntimeVersion, info.kubeletVersion) if info else ("", "")

    def node(self, name: str) -> ObjectMeta | None:
        """Returns the metadata of a Node, None where there is no such Node.

        Raises:
            ApiUnreachable: there was no answer.
            ApiRefused: the agent may not ask.
        """
        try:
            found = self.ask(lambda client: client.get(Node, name))
        except ApiRefused as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise
        return found.metadata or ObjectMeta()

    def create_event(self, event: Event) -> None:
        """Creates an Event; one that is there already, from a call whose answer was lost, stays.

        Raises:
            ApiUnreachable: there was no answer.
            ApiRefused: it is not taken.
        """
        try:
            self.ask(lambda client: client.create(event))
        except ApiRefused as error:
            if error.status != HTTPStatus.CONFLICT:
                raise

    def update_event(self, namespace: str, name: str, values: Mapping[str, Any]) -> bool:
        """Sets values of an Event; returns False where the API server has forgotten it.

        Raises:
            ApiUnreachable: there was no answer.
            ApiRefused: they are not taken.
        """
        try:
            self.ask(
                lambda client: client.patch(
                    Event, name, dict(values), namespace=namespace, patch_type=PatchType.MERGE
                )
            )
        except ApiRefused as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return False
            raise
        return True

    def ask(self, call: Callable[[Client], _Answer]) -> _Answer:
        """Returns the answer to one call of lightkube's.

        Raises:
            ApiUnreachable: there was no answer.
            ApiRefused: the agent may not ask, or what it asks for is not there.
        """
        try:
            return call(self._client.get())
        except httpx2.HTTPStatusError as error:
            status = error.response.status_code
            if status in TRY_AGAIN or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                raise ApiUnreachable(f"the API server answers with status {status}") from None
            message = error.status.message if isinstance(error, ApiError) else None
            raise ApiRefused(status, message or "no reason given") from None
        except (httpx2.HTTPError, OSError, ConfigError) as error:  # ssl.SSLError is an OSError
            raise ApiUnreachable(f"the API server {self.where} does not answer: {error}") from None
        except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:
            # Not the API server's own answer; lightkube looks into one without checking its form.
            raise ApiUnreachable(
                f"{self.where} answers in a form that no API server has: {error!r}"
            ) from None

    def _make_client(self) -> Client:
        return Client(
            KubeConfig.from_one(
                cluster=Cluster(f"https://{self.where}", str(self._account / "ca.crt")),
                user=User(token_file=str(self._account / "token")),
            ),
            timeout=httpx2.Timeout(TIMEOUT_S),
            trust_env=False,  # a proxy of the environment is not for the API server
        )
