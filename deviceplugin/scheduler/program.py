"""The extender put together: state, followers, election, calls and server, from start to end."""

import gc
import logging
import socket
import sys
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from deviceplugin.kube.api_client import ApiServer
from deviceplugin.log import event
from deviceplugin.model.fractional import Placement
from deviceplugin.scheduler.answers.extender import Extender
from deviceplugin.scheduler.binding.binder import Binder
from deviceplugin.scheduler.binding.former_lease import FormerLease
from deviceplugin.scheduler.binding.leader import Election, Identity
from deviceplugin.scheduler.binding.waking import Waker, wake_up
from deviceplugin.scheduler.cluster.cluster import Cluster
from deviceplugin.scheduler.cluster.follow import ClusterFollower
from deviceplugin.scheduler.cluster.freshness import DEFAULT_LIMIT_S, Freshness
from deviceplugin.scheduler.cluster.quota_file import QuotaFile
from deviceplugin.scheduler.search.fractions import laid_out
from deviceplugin.scheduler.search.policies import Policies
from deviceplugin.scheduler.wire.bind_call import BindCall
from deviceplugin.scheduler.wire.forwarding import Forwarder
from deviceplugin.scheduler.wire.server import CALLS, Endpoints, extender_server
from deviceplugin.scheduler.wire.volcano import DEFAULT_WEIGHT, VolcanoExtender
from deviceplugin.serving.calls import Limits
from deviceplugin.serving.certificate import Certificate

from .metrics import ClusterCollector, Counts, MetricsPage

#: A call that waits for Python's lock gets it after this, though a list of pods is being decoded.
SWITCH_INTERVAL_S = 0.0005
_LOOK_EVERY_S, _STOP_WITHIN_S = 0.5, 0.2
_TO_END_S = 3.0


@dataclass(frozen=True, slots=True)
class Settings:
    """How the extender runs.

    Attributes:
        namespace: of the node agents.
        domain: of the resources.
        node_policy: which node is best.
        gpu_policy: which GPU is; None: as the node's config says.
        pod_selector: labels of the pods that are followed; empty for all.
        binds: it binds pods.
        wakes: it has kube-scheduler try refused pods again once they fit.
        lease: by which one of several replicas is elected; empty where there is only this one.
        election_namespace: of this Lease; empty for that of the node agents, who can write it then.
        advertised: host and port at which the other replicas reach this one.
        tls: directory of the certificate; None for HTTP without TLS.
        tls_name: for which the certificate of the other replicas is.
        shown_tls: directory of the certificate that replicas show each other; None: of `tls`.
        state_limit_s: how old the state may be.
        volcano_weight: by which Volcano's scores count.
        limits: of the server.
    """

    namespace: str
    domain: str
    node_policy: Placement = Placement.BINPACK
    gpu_policy: Placement | None = None
    pod_selector: str = ""
    binds: bool = True
    wakes: bool = True
    lease: str = ""
    election_namespace: str = ""
    advertised: str = ""
    tls: Path | None = None
    tls_name: str = ""
    shown_tls: Path | None = None
    state_limit_s: float = DEFAULT_LIMIT_S
    volcano_weight: int = DEFAULT_WEIGHT
    limits: Limits = field(default_factory=Limits)


def run(
    settings: Settings,
    api: ApiServer,
    quota_file: QuotaFile | None,
    listening: socket.socket,
    probed: socket.socket | None,
    certificate: Certificate | None,
    stop: threading.Event,
) -> None:
    """Serves until ``stop``; takes over the listening sockets.

    Args:
        probed: for pages alone; None: they are served next to the calls alone.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    policies = Policies(settings.domain, settings.node_policy, settings.gpu_policy)
    waker: Waker
    cluster = Cluster(policies.plan, changed=lambda node: waker.changed(node))
    waker = Waker(cluster.view, policies.plan, lambda: wake_up(api, settings.namespace))
    follower = ClusterFollower(
        api, cluster, settings.domain, settings.namespace, settings.pod_selector
    )
    is_prepared = threading.Event()
    freshness = Freshness(
        lambda: is_prepared.is_set() and follower.is_current,
        lambda: follower.problem,
        settings.state_limit_s,
    )
    counts = Counts(CALLS.values())
    election = _election(settings, api)
    is_leader = _leading(settings, election)
    extender: Extender

    def obstacle() -> str:
        if stop.is_set() or not is_leader():
            return "this replica does not bind now"
        return freshness.obstacle

    binder = Binder(
        api,
        cluster,
        policies.plan,
        settings.domain,
        obstacle,
        lambda request, view, plan: extender.bind_refusal(request, view, plan),
        settles_in_s=lambda: follower.settles_in_s,
    )
    extender = Extender(
        cluster,
        policies,
        lambda: () if quota_file is None else quota_file.quotas,
        lambda: freshness.obstacle,
        counts.judged,
        binder.remember if settings.binds else lambda request: None,
        waker.refused if settings.wakes else lambda request: None,
    )
    bind = BindCall(
        binder if settings.binds else None,
        is_leader,
        Forwarder(
            lambda: election.leader_address, settings.tls, settings.tls_name, settings.shown_tls
        )
        if election is not None
        else None,
        counts.bound,
    )
    server = extender_server(
        listening,
        certificate,
        settings.limits,
        Endpoints(extender, VolcanoExtender(extender, settings.volcano_weight), bind),
        counts,
        MetricsPage(
            counts,
            ClusterCollector(
                cluster,
                lambda: freshness.age_s,
                is_leader,
                lambda: quota_file is None or quota_file.is_good,
            ),
        ),
        lambda: "this replica ends" if stop.is_set() else freshness.obstacle,
    )
    follower.start()
    if quota_file is not None:
        quota_file.start()
    if election is not None:
        election.start()
    if settings.wakes:
        waker.start()
    servers = [server, *([server.pages_on(probed)] if probed is not None else [])]
    for each in servers:
        threading.Thread(target=each.serve_forever, name="server", daemon=True).start()
    event(
        logging.INFO,
        "scheduler extender started",
        address=server.server_address[1],
        probes=servers[-1].server_address[1],
        tls=certificate is not None,
        binds=settings.binds,
    )
    while not stop.is_set() and not follower.wait_synced(_STOP_WITHIN_S):
        pass
    _prepare(cluster, stop)
    is_prepared.set()
    event(logging.INFO, "nodes and pods are known", nodes=len(cluster.nodes()))
    _watch(freshness, cluster, stop)
    event(logging.INFO, "scheduler extender stops")
    server.shutdown()
    server.end_calls(_TO_END_S)
    if election is not None:
        election.stop()  # not before the binds that it allowed have ended
    for each in servers:
        each.server_close()
    waker.stop()
    follower.stop()
    if quota_file is not None:
        quota_file.stop()


def _election(settings: Settings, api: ApiServer) -> Election | None:
    if not settings.binds or not settings.lease:
        return None
    identity = Identity(f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}", settings.advertised)
    where = settings.election_namespace or settings.namespace
    former = None
    if where != settings.namespace:
        former = FormerLease(api, settings.namespace, settings.lease)
    return Election(api, where, settings.lease, identity, former=former)


def _leading(settings: Settings, election: Election | None) -> Callable[[], bool]:
    if election is None:
        return lambda: settings.binds
    return lambda: election.is_leader


def _prepare(cluster: Cluster, stop: threading.Event) -> None:
    """Looks at every node once, so that the first calls need not.

    What stays for long is looked at no more when garbage is collected: that would hold up calls for
    a tenth of a second.
    """
    for name in cluster.nodes():
        found = cluster.view(name)
        if found is not None:
            laid_out(found[1])
        if stop.is_set():
            return
    gc.collect()
    gc.freeze()


def _watch(freshness: Freshness, cluster: Cluster, stop: threading.Event) -> None:
    """Says when the state ends to be of use and when it is again, until ``stop``."""
    was = ""
    while not stop.wait(_LOOK_EVERY_S):
        now = freshness.obstacle
        if now and not was:
            event(logging.ERROR, "schedulers get no answers", reason=now)
        elif was and not now:
            event(logging.INFO, "nodes and pods are known again", nodes=len(cluster.nodes()))
        was = now
