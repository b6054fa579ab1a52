"""Sends Kubernetes Events, on a thread of its own, from a bounded queue.

`EventSender.put` never blocks and never fails: a full queue drops what comes. The thread tells the
API server of each Event in order; where it does not answer, it waits (1 s, doubled up to
`BACKOFF_MOST_S`) and tries the same one again, while what comes meanwhile is counted up and queued.
What the API server refuses is dropped, and the reason logged once. Without a service account there
is no thread at all.
"""

import contextlib
import logging
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from lightkube.models.core_v1 import EventSource, ObjectReference
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Event

from deviceplugin import runtime
from deviceplugin.heartbeats import Beat
from deviceplugin.log import LOGGER, event
from deviceplugin.model.allocations import Owner
from deviceplugin.model.notices import Notice

from .api_client import ApiRefused, ApiServer, ApiUnreachable
from .notices import Aggregator, NoticeTap, Record

QUEUE_LENGTH = 256
BACKOFF_MOST_S = 60.0
MOST_TEXT = 1000  # characters; the API server refuses notes above 1024 bytes
_BACKOFF_FIRST_S = 1.0
_NODE_NAMESPACE = "default"  # where Events of things without a namespace live
_COMPONENT = "vgpu-agent"
_STOP_WAIT_S = 1.0


class EventSender:
    """The thread that tells the API server."""

    def __init__(
        self, api: ApiServer, node: str, clock: Callable[[], float] = runtime.monotonic
    ) -> None:
        """Starts nothing yet.

        Args:
            node: name of this Node, which the Events name as their source.
            clock: seconds, from any start.
        """
        self._api, self._node, self._clock = api, node, clock
        self._queue: runtime.Queue[Notice | None] = runtime.new_queue(QUEUE_LENGTH)
        self._aggregator = Aggregator()
        self._backlog: deque[Record] = deque(maxlen=QUEUE_LENGTH)
        self._backoff_s = 0.0
        self._retry_at = 0.0
        self._said = ""
        self._stopping = False
        self.beat = Beat(clock=clock)
        self._thread = runtime.thread(target=self._run, name="events")

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; what was not told by then is lost (it stands in the log)."""
        self._stopping = True
        self.put(None)
        self._thread.join(_STOP_WAIT_S)

    def put(self, notice: Notice | None) -> None:
        """Takes one notice; never blocks."""
        with contextlib.suppress(runtime.Full):
            self._queue.put_nowait(notice)

    def _run(self) -> None:
        while not self._stopping:
            self.beat.rest()
            try:
                notice = self._queue.get(timeout=self._patience_s())
            except runtime.Empty:
                notice = None
            self.beat()
            now = self._clock()
            record = self._aggregator.add(notice, now) if notice is not None else None
            if record is not None:
                self._backlog.append(record)
            self._backlog.extend(self._aggregator.due(now))
            if now >= self._retry_at:
                self._tell_all()

    def _patience_s(self) -> float | None:
        """Returns how long there is nothing to do; None: until something comes."""
        wakes = [self._aggregator.next_due(), self._retry_at if self._backlog else None]
        moments = [moment for moment in wakes if moment is not None]
        return max(0.0, min(moments) - self._clock()) if moments else None

    def _tell_all(self) -> None:
        while self._backlog and not self._stopping:
            self.beat()
            try:
                self._tell(self._backlog[0])
            except ApiUnreachable as error:
                if self._stopping:
                    return
                self._say(error.message)
                self._backoff_s = min(BACKOFF_MOST_S, self._backoff_s * 2 or _BACKOFF_FIRST_S)
                self._retry_at = self._clock() + self._backoff_s
                return
            except Exception:  # an answer of an unforeseen form must not end the thread
                LOGGER.exception("a Kubernetes Event failed")
            self._backoff_s = 0.0
            self._backlog.popleft()

    def _tell(self, record: Record) -> None:
        """Tells of one Event.

        Raises:
            ApiUnreachable: it is to be told again later.
        """
        if record.told == record.count:
            return  # it was counted up while it waited for its first time
        if record.uid is None:
            record.uid = self._uid(record.notice)
        namespace = _namespace(record.notice)
        news = {"count": record.count, "lastTimestamp": self._moment(record.last_at)}
        try:
            if not (record.told and self._api.update_event(namespace, record.name, news)):
                self._api.create_event(self._event(record, namespace))
        except ApiRefused as error:
            self._say(f"an Event was refused with status {error.status}: {error.message}")
            return
        record.told = record.count
        self._said = ""

    def _uid(self, notice: Notice) -> str:
        """Returns what kubectl finds the object's Events by, empty where we may not ask."""
        if not isinstance(notice.subject, Owner):
            return self._node  # as the kubelet's own Events have it
        try:
            pod = self._api.pod(notice.subject.namespace, notice.subject.pod)
        except ApiRefused:
            return ""
        return (pod.uid if pod else None) or ""

    def _event(self, record: Record, namespace: str) -> Event:
        notice, subject, text = record.notice, record.notice.subject, record.notice.text
        concerned = ObjectReference(apiVersion="v1", kind="Node", name=self._node)
        if isinstance(subject, Owner):
            concerned = ObjectReference(
                apiVersion="v1", kind="Pod", name=subject.pod, namespace=subject.namespace
            )
            text = f"container {subject.container}: {text}"
        concerned.uid = record.uid or None
        return Event(
            metadata=ObjectMeta(name=record.name, namespace=namespace),
            involvedObject=concerned,
            reason=notice.reason.value,
            message=text[:MOST_TEXT],
            type="Warning" if notice.reason.is_warning else "Normal",
            source=EventSource(component=_COMPONENT, host=self._node),
            reportingComponent=_COMPONENT,
            reportingInstance=self._node,
            firstTimestamp=self._moment(record.first_at),
            lastTimestamp=self._moment(record.last_at),
            count=record.count,
        )

    def _moment(self, at: float) -> datetime:
        """Returns a moment of our clock, in whole seconds as the API server keeps it."""
        ago = timedelta(seconds=self._clock() - at)
        return (datetime.fromtimestamp(runtime.epoch(), UTC) - ago).replace(microsecond=0)

    def _say(self, problem: str) -> None:
        if problem != self._said:  # once, not at every try
            event(logging.WARNING, "Kubernetes Events do not arrive", reason=problem)
        self._said = problem


def _namespace(notice: Notice) -> str:
    subject = notice.subject
    return subject.namespace if isinstance(subject, Owner) else _NODE_NAMESPACE


class NodeEvents:
    """Events from the notices in the agent's log, as long as it runs; none without an account."""

    def __init__(self, api: ApiServer | None, node: str) -> None:
        """Starts sending.

        Args:
            api: None where there is no service account.
            node: name of this Node.
        """
        self.beat = Beat()
        self._sender: EventSender | None = None
        self._tap: NoticeTap | None = None
        if api is None:
            event(logging.INFO, "no Kubernetes Events: there is no service account here")
            return
        self._sender = EventSender(api, node)
        self.beat = self._sender.beat
        self._tap = NoticeTap(self._sender.put)
        self._sender.start()
        LOGGER.addHandler(self._tap)

    def stop(self) -> None:
        """Stops sending."""
        if self._sender is not None and self._tap is not None:
            LOGGER.removeHandler(self._tap)
            self._sender.stop()
