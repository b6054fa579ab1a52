"""``python -m deviceplugin.scheduler``: the scheduler extender's command line."""

import os
import socket
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from deviceplugin import log
from deviceplugin.config.loading import is_domain
from deviceplugin.heap import return_freed_memory
from deviceplugin.kube.api_client import SERVICE_ACCOUNT, ApiServer
from deviceplugin.model.fractional import Placement
from deviceplugin.scheduler.cluster.freshness import DEFAULT_LIMIT_S
from deviceplugin.scheduler.cluster.quota_file import QuotaFile
from deviceplugin.scheduler.wire.volcano import DEFAULT_WEIGHT
from deviceplugin.serving.calls import Limits
from deviceplugin.serving.certificate import Certificate, check_probes
from deviceplugin.serving.listeners import join_address, split_address, tcp_listener
from deviceplugin.stopping import stop_on_signals
from libvgpu.errors import UsageError, VgpuError

from .program import Settings, run

_POLICIES = click.Choice([each.value for each in Placement])
_DOMAIN = "nvidia.com"
_ANY_HOST = ("0.0.0.0", "::")  # noqa: S104 - told apart, not listened on


@click.command(
    help="Tells kube-scheduler and Volcano which nodes have a GPU with room for a pod, and binds."
)
@click.option("--address", default=":8443", show_default=True, help="HOST:PORT.")
@click.option(
    "--probe-address",
    default="",
    help="HOST:PORT of the pages alone, for anybody and without TLS.  [default: none]",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The node agents' config file; its quotas count here.",
)
@click.option(
    "--namespace",
    envvar="POD_NAMESPACE",
    help="Namespace of the node agents.  [default: that of the service account]",
)
@click.option(
    "--tls-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory with tls.crt and tls.key, and ca.crt for calls between replicas.",
)
@click.option(
    "--client-ca",
    type=click.Path(path_type=Path, dir_okay=False),
    help="PEM of who must have signed a caller's certificate; needs --probe-address.",
)
@click.option(
    "--shown-tls-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory with tls.crt and tls.key that replicas show each other.  [default: --tls-dir]",
)
@click.option("--plain-http", is_flag=True, help="Serve without TLS.")
@click.option(
    "--resource-domain",
    default="",
    help="Domain of the resources.  [default: resourceDomain of the config, or nvidia.com]",
)
@click.option(
    "--pod-selector", default="", help="Labels of the pods that are followed.  [default: all pods]"
)
@click.option(
    "--node-policy",
    type=_POLICIES,
    default=Placement.BINPACK.value,
    show_default=True,
    help="Which node is best, where the pod does not say.",
)
@click.option(
    "--gpu-policy",
    type=_POLICIES,
    help="Which GPU is best, where the pod does not say.  [default: by the node's config]",
)
@click.option(
    "--bind/--no-bind", default=True, show_default=True, help="Bind pods, with their GPUs."
)
@click.option(
    "--wake-up/--no-wake-up",
    "wakes",
    default=True,
    show_default="wake-up",
    help="Have kube-scheduler try refused pods again once they fit.",
)
@click.option(
    "--leader-elect/--no-leader-elect",
    default=True,
    show_default=True,
    help="Bind on one of several replicas at a time.",
)
@click.option("--lease", default="vgpu-scheduler", show_default=True, help="Of the election.")
@click.option(
    "--election-namespace",
    default="",
    help="Its Lease's namespace, in which node agents can write nothing.  [default: --namespace]",
)
@click.option(
    "--advertise",
    default="",
    help="HOST:PORT at which other replicas reach this one.  [default: $POD_IP, or this host]",
)
@click.option(
    "--tls-name",
    default="",
    help="Name in the replicas' certificate.  [default: LEASE.NAMESPACE.svc]",
)
@click.option(
    "--state-limit",
    type=click.FloatRange(1, 3600),
    default=DEFAULT_LIMIT_S,
    show_default=True,
    help="Seconds for which the last state is used while the API server does not answer.",
)
@click.option(
    "--body-limit",
    type=click.IntRange(1, 1024),
    default=16,
    show_default=True,
    help="Largest call, in MiB.",
)
@click.option(
    "--volcano-weight",
    type=click.IntRange(0, 1000),
    default=DEFAULT_WEIGHT,
    show_default=True,
    help="Factor for scores in Volcano.",
)
@click.option(
    "--service-account",
    type=click.Path(path_type=Path, file_okay=False),
    default=SERVICE_ACCOUNT,
    show_default=True,
    help="Directory with token, ca.crt and namespace.",
)
def main(**given: Any) -> None:
    """Serves until SIGTERM or SIGINT; exit status 2 for a wrong option or config, 1 for others."""
    return_freed_memory()
    log.set_up()
    stop = stop_on_signals()
    try:
        _serve(Given(**given), stop)
    except VgpuError as error:
        hint = f" (hint: {error.hint})" if error.hint else ""
        click.echo(f"scheduler: {error.message}{hint}", err=True)
        sys.exit(error.exit_status)


@dataclass(frozen=True, slots=True)
class Given:
    """The options, by their names."""

    address: str
    probe_address: str
    config: Path | None
    namespace: str | None
    tls_dir: Path | None
    client_ca: Path | None
    shown_tls_dir: Path | None
    plain_http: bool
    resource_domain: str
    pod_selector: str
    node_policy: str
    gpu_policy: str | None
    bind: bool
    wakes: bool
    leader_elect: bool
    lease: str
    election_namespace: str
    advertise: str
    tls_name: str
    state_limit: float
    body_limit: int
    volcano_weight: int
    service_account: Path

    @property
    def limits(self) -> Limits:
        """What clients may take of the server."""
        return Limits(
            body_bytes=self.body_limit << 20, bodies_bytes=max(96, 4 * self.body_limit) << 20
        )


def _serve(given: Given, stop: threading.Event) -> None:
    _check_tls(given)
    quota_file = QuotaFile(given.config) if given.config is not None else None
    domain = _domain(given, quota_file)
    api = _api_server(given.service_account)
    if given.advertise and not split_address(given.advertise, "--advertise")[0]:
        raise UsageError(f"--advertise {given.advertise!r} has no host, and must say which one")
    listening = tcp_listener(given.address, "--address")
    probed = tcp_listener(given.probe_address, "--probe-address") if given.probe_address else None
    settings = _settings(
        given, domain, given.namespace or api.namespace, given.advertise or _advertised(listening)
    )
    run(settings, api, quota_file, listening, probed, _certificate(given), stop)


def _check_tls(given: Given) -> None:
    if (given.tls_dir is None) != given.plain_http:
        raise UsageError("give either --tls-dir DIR or --plain-http")
    if given.client_ca is not None and given.plain_http:
        raise UsageError("--client-ca needs --tls-dir: without TLS nobody shows a certificate")
    check_probes(given.client_ca, given.probe_address)


def _domain(given: Given, quota_file: QuotaFile | None) -> str:
    of_config = quota_file.config.resource_domain if quota_file is not None else _DOMAIN
    domain = given.resource_domain or of_config
    if not is_domain(domain):
        raise UsageError(f"--resource-domain {domain!r} is not a domain name like nvidia.com")
    return domain


def _api_server(service_account: Path) -> ApiServer:
    api = ApiServer.from_environment(os.environ, service_account)
    if api is None:
        raise VgpuError(
            "there is no API server to ask: KUBERNETES_SERVICE_HOST is not set, or "
            f"{service_account} has no token and ca.crt; it must run in a pod with a service "
            "account"
        )
    return api


def _settings(given: Given, domain: str, namespace: str, advertised: str) -> Settings:
    return Settings(
        namespace=namespace,
        domain=domain,
        node_policy=Placement(given.node_policy),
        gpu_policy=Placement(given.gpu_policy) if given.gpu_policy else None,
        pod_selector=given.pod_selector,
        binds=given.bind,
        wakes=given.wakes,
        lease=given.lease if given.leader_elect else "",
        election_namespace=given.election_namespace,
        advertised=advertised,
        tls=given.tls_dir,
        tls_name=given.tls_name or f"{given.lease}.{namespace}.svc",
        shown_tls=given.shown_tls_dir,
        state_limit_s=given.state_limit,
        volcano_weight=given.volcano_weight,
        limits=given.limits,
    )


def _certificate(given: Given) -> Certificate | None:
    if given.tls_dir is None:
        return None
    try:
        return Certificate(given.tls_dir, given.client_ca)
    except OSError as error:
        and_ca = f", or --client-ca {given.client_ca} has none" if given.client_ca else ""
        raise UsageError(f"--tls-dir {given.tls_dir} has no certificate{and_ca}: {error}") from None


def _advertised(listening: socket.socket) -> str:
    """Returns where other replicas reach this one: the pod's address, or the one listened on."""
    host, port = listening.getsockname()[:2]
    if host in _ANY_HOST:
        host = os.environ.get("POD_IP") or socket.gethostname()
    return join_address(host, port)


if __name__ == "__main__":
    main()
