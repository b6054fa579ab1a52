"""``bind``: here where this replica leads, else once on the replica that does."""

import logging
from collections.abc import Callable

from deviceplugin.log import event
from deviceplugin.scheduler.answers.calls import BindingAsked
from deviceplugin.scheduler.binding.binder import Binder, BindFailed, BindOutcome
from deviceplugin.serving.calls import Call

from .forwarding import FORWARDED, Forwarder
from .kube_scheduler import binding_asked


class BindCall:
    """Binds; safe to use from several threads."""

    def __init__(
        self,
        binder: Binder | None,
        is_leader: Callable[[], bool],
        forwarder: Forwarder | None,
        count: Callable[[BindOutcome | None], None] = lambda outcome: None,
    ) -> None:
        """Binds nothing yet.

        Args:
            binder: None where this program binds nothing.
            is_leader: says whether this replica may bind.
            forwarder: None where there are no other replicas.
            count: is told what became of each bind; None where the pod was bound.
        """
        self._binder, self._is_leader = binder, is_leader
        self._forwarder, self._count = forwarder, count

    def bind(self, call: Call) -> str:
        """Returns why a pod was not bound, empty where it was.

        Raises:
            CallMalformed: it is no such call.
        """
        asked = binding_asked(call.body)
        if self._binder is None:
            return (
                "the extender binds nothing, since it runs with --no-bind; leave bindVerb out of "
                "the scheduler's configuration"
            )
        try:
            if self._is_leader() or self._forwarder is None:
                self._binder.bind(asked.namespace, asked.name, asked.uid, asked.node)
            elif FORWARDED in call.headers:
                return _told(
                    asked, "this replica does not bind, and the call was passed on once already"
                )
            else:
                # Counted and logged by the replica that binds.
                return self._forwarder.bind(call.body)
        except BindFailed as error:
            self._count(error.outcome)
            return _told(asked, error.message)
        self._count(None)
        event(
            logging.INFO,
            "bound a pod",
            pod=f"{asked.namespace}/{asked.name}",
            node=asked.node,
            uid=asked.uid,
        )
        return ""


def _told(asked: BindingAsked, why: str) -> str:
    event(
        logging.WARNING,
        "a pod was not bound",
        pod=f"{asked.namespace}/{asked.name}",
        node=asked.node,
        uid=asked.uid,
        reason=why,
    )
    return why
