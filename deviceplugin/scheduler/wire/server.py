"""The extender over HTTP: which path is which call, and how an error is told there.

kube-scheduler hears of an error in the answer's ``Error`` where its type has one (filter, bind) and
by the status where it has none. What is no call at all is 400 with a sentence.
"""

import socket
from collections.abc import Callable
from http import HTTPStatus

from deviceplugin.scheduler.answers.extender import Extender, NotAnswered
from deviceplugin.scheduler.metrics import Counts, MetricsPage
from deviceplugin.serving.call_server import CallServer
from deviceplugin.serving.calls import TEXT, Answer, Call, CallRefused, Limits
from deviceplugin.serving.certificate import Certificate
from libvgpu.errors import VgpuError

from . import kube_scheduler, volcano_calls
from .bind_call import BindCall
from .go_json import CallMalformed
from .volcano import VolcanoExtender
from .volcano_calls import Vote

VOLCANO = "/volcano"
_NOTHING = Answer(b"{}")
#: Paths of the calls that are measured, and their names in metrics.
CALLS = {
    "/filter": "filter",
    "/prioritize": "prioritize",
    "/preempt": "preempt",
    "/bind": "bind",
    f"{VOLCANO}/predicate": "volcano-predicate",
    f"{VOLCANO}/prioritize": "volcano-prioritize",
    f"{VOLCANO}/preemptable": "volcano-preemptable",
    f"{VOLCANO}/reclaimable": "volcano-reclaimable",
}


class Endpoints:
    """The calls; safe to use from several threads."""

    def __init__(self, extender: Extender, volcano: VolcanoExtender, bind: BindCall) -> None:
        """Answers by the extender."""
        self._extender, self._volcano, self._bind = extender, volcano, bind

    def filter(self, call: Call) -> Answer:
        """Answers kube-scheduler's ``filter``."""
        asked = kube_scheduler.nodes_asked(call.body)
        return Answer(
            kube_scheduler.filter_result(self._extender.filter(asked, call.deadline_s), asked)
        )

    def prioritize(self, call: Call) -> Answer:
        """Answers kube-scheduler's ``prioritize``."""
        asked = kube_scheduler.nodes_asked(call.body)
        return Answer(kube_scheduler.priorities(self._extender.prioritize(asked, call.deadline_s)))

    def preempt(self, call: Call) -> Answer:
        """Answers kube-scheduler's ``preempt``."""
        asked = kube_scheduler.preemption_asked(call.body)
        return Answer(
            kube_scheduler.preemption_result(self._extender.preempt(asked, call.deadline_s))
        )

    def bind(self, call: Call) -> Answer:
        """Answers kube-scheduler's ``bind``, and another replica's."""
        return Answer(kube_scheduler.error_result(self._bind.bind(call)))

    def predicate(self, call: Call) -> Answer:
        """Answers Volcano's ``predicate``."""
        asked = volcano_calls.task_on_node(call.body)
        return Answer(volcano_calls.predicate_result(*self._volcano.predicate(asked)))

    def scores(self, call: Call) -> Answer:
        """Answers Volcano's ``prioritize``."""
        asked = volcano_calls.task_on_nodes(call.body)
        try:
            return Answer(volcano_calls.prioritize_result(self._volcano.prioritize(asked)))
        except NotAnswered as error:
            return Answer(volcano_calls.prioritize_result({}, error.message))

    def evictable(self, call: Call) -> Answer:
        """Answers Volcano's ``preemptable`` and ``reclaimable``."""
        asked = volcano_calls.eviction_asked(call.body)
        try:
            vote, victims = self._volcano.evictable(asked)
        except VgpuError:
            vote, victims = Vote.REJECT, []
        return Answer(volcano_calls.eviction_result(vote, victims))


def extender_server(
    listening: socket.socket,
    certificate: Certificate | None,
    limits: Limits,
    endpoints: Endpoints,
    counts: Counts,
    metrics: MetricsPage,
    obstacle: Callable[[], str],
) -> CallServer:
    """Returns a server that takes over a listening socket.

    Args:
        obstacle: says why nobody can be answered now; empty where they can be.
    """

    def ready(call: Call) -> Answer:
        why = obstacle()
        status = HTTPStatus.SERVICE_UNAVAILABLE if why else HTTPStatus.OK
        return Answer(f"{why or 'ok'}\n".encode(), status, TEXT)

    calls = {
        "/filter": endpoints.filter,
        "/prioritize": endpoints.prioritize,
        "/preempt": endpoints.preempt,
        "/bind": endpoints.bind,
        f"{VOLCANO}/predicate": endpoints.predicate,
        f"{VOLCANO}/prioritize": endpoints.scores,
        f"{VOLCANO}/preemptable": endpoints.evictable,
        f"{VOLCANO}/reclaimable": endpoints.evictable,
        # A session is nothing that is kept: each call brings along what it needs.
        f"{VOLCANO}/onSessionOpen": lambda call: _NOTHING,
        f"{VOLCANO}/onSessionClose": lambda call: _NOTHING,
    }
    return CallServer(
        listening,
        {
            **{("POST", path): _told(answer) for path, answer in calls.items()},
            ("GET", "/healthz"): lambda call: Answer(b"ok\n", kind=TEXT),
            ("GET", "/readyz"): ready,
            ("GET", "/metrics"): metrics.page,
        },
        certificate,
        limits,
        lambda path, status, seconds: counts.answered(CALLS.get(path, ""), status, seconds),
    )


def _told(answer: Callable[[Call], Answer]) -> Callable[[Call], Answer]:
    """Returns a handler whose errors are told by the status."""

    def handler(call: Call) -> Answer:
        try:
            return answer(call)
        except CallMalformed as error:
            raise CallRefused(HTTPStatus.BAD_REQUEST, error.message) from None
        except NotAnswered as error:
            raise CallRefused(HTTPStatus.SERVICE_UNAVAILABLE, error.message) from None
        except VgpuError as error:
            raise CallRefused(HTTPStatus.UNPROCESSABLE_ENTITY, error.message) from None

    return handler
