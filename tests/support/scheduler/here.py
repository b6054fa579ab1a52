"""The extender in this process, without HTTP: all that `program.run` puts together but the server.

It follows an API server and answers in the wire format. `restart` is a new program: what it knew is
forgotten, and what was assumed too.
"""

import time
from collections.abc import Callable, Sequence

from benchmarks.simulated_cluster.machines import DOMAIN
from deviceplugin.config.quotas import Quota
from deviceplugin.http.calls import Call
from deviceplugin.kube.api_client import ApiServer
from deviceplugin.scheduler.answers.extender import Extender
from deviceplugin.scheduler.binding.binder import Binder
from deviceplugin.scheduler.cluster.cluster import Cluster
from deviceplugin.scheduler.cluster.follow import ClusterFollower
from deviceplugin.scheduler.cluster.freshness import Freshness
from deviceplugin.scheduler.metrics import Counts
from deviceplugin.scheduler.search.policies import Policies
from deviceplugin.scheduler.wire.bind_call import BindCall
from deviceplugin.scheduler.wire.server import CALLS, Endpoints
from deviceplugin.scheduler.wire.volcano import VolcanoExtender
from support.waiting import PATIENCE_S

_CALL_S = 10.0
#: Shorter than in a cluster: a pod that is deleted while nobody knows whether it was bound takes
#: its room for so long.
ASSUMED_S = 8.0


class ExtenderHere:
    """Use `send` as what sends calls; `stop` it in the end."""

    def __init__(
        self,
        api: Callable[[], ApiServer],
        namespace: str,
        quotas: Sequence[Quota] = (),
    ) -> None:
        """Starts it, and waits until it knows the cluster.

        Args:
            api: makes a client of the API server.
            namespace: of the agents.
        """
        self._api, self._namespace, self._quotas = api, namespace, quotas
        self.restarts = -1
        self.restart()

    def restart(self) -> None:
        """Begins again; the one before is ended without a word."""
        if self.restarts >= 0:
            self.stop()
        self.restarts += 1
        api, policies = self._api(), Policies(DOMAIN)
        self.cluster = Cluster(policies.plan, ASSUMED_S)
        self.follower = ClusterFollower(api, self.cluster, DOMAIN, self._namespace)
        follower = self.follower
        freshness = Freshness(lambda: follower.is_current, lambda: follower.problem)
        binder = Binder(
            api, self.cluster, policies.plan, DOMAIN, lambda: freshness.obstacle,
            lambda request, view, plan: self._extender.bind_refusal(request, view, plan),
            settles_in_s=lambda: follower.settles_in_s,
        )  # fmt: skip
        self._extender = Extender(
            self.cluster, policies, lambda: self._quotas, lambda: freshness.obstacle,
            remember=binder.remember,
        )  # fmt: skip
        counts = Counts(CALLS.values())
        bind = BindCall(binder, lambda: True, None, counts.bound)
        endpoints = Endpoints(self._extender, VolcanoExtender(self._extender, 1), bind)
        self._verbs = {
            "filter": endpoints.filter,
            "prioritize": endpoints.prioritize,
            "bind": endpoints.bind,
        }
        follower.start()
        assert follower.wait_synced(PATIENCE_S), (
            f"the extender does not list nodes and pods: {follower.problem}"
        )

    def send(self, verb: str, body: bytes) -> bytes:
        """Makes a call; one that cannot be answered is an OSError, as a status would be."""
        try:
            return self._verbs[verb](Call(verb, body, time.monotonic() + _CALL_S)).body
        except Exception as error:
            raise OSError(f"{verb} is not answered: {error}") from error

    def stop(self) -> None:
        """Ends it."""
        self.follower.stop()
