"""Publishes what the node has and what of it is held, in a thread of its own.

The agent's loop looks a few times a second whether something changed (`InventoryFeed.look`, a few
comparisons while nothing did) and hands over what the node is like then. The thread makes the
annotation of it and writes it when it differs: not sooner than `LEAST_BETWEEN_S` after it was
written last, and again every `REFRESH_S`, which repairs what somebody else did to it. So neither an
`Allocate` nor the loop ever waits for the API server. Where that does not answer or refuses, the
newest state is tried again after a while (doubled up to `BACKOFF_MOST_S`), and the reason is logged
once. The Lease stays when the agent ends: its containers do, too.

`put`, `start` and `stop` are called by the agent's loop.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from deviceplugin import runtime
from deviceplugin.heartbeats import Beat
from deviceplugin.log import LOGGER, event
from deviceplugin.model.held_devices import Held
from deviceplugin.pages.published import INVENTORY_KEY
from deviceplugin.policy.devices.layout import Layout
from deviceplugin.policy.published.inventory import NodeMoment, published_node
from deviceplugin.policy.published.size import fitted_value
from deviceplugin.policy.published.slices import Holdings, half_until_s
from deviceplugin.store.node_state import NodeState
from libvgpu.errors import VgpuError

LEAST_BETWEEN_S = 1.0
#: Changes come in pairs: core and memory of a container are given one after the other.
GATHER_S = 0.1
REFRESH_S = 300.0
BACKOFF_FIRST_S, BACKOFF_MOST_S = 1.0, 60.0
_MOST_ERROR = 300


class InventoryFeed:
    """Sees that what is published of a node has changed; used by the agent's loop."""

    def __init__(
        self,
        state: NodeState,
        put: Callable[[NodeMoment], None],
        clock: Callable[[], float] = runtime.monotonic,
    ) -> None:
        """Has seen nothing yet.

        Args:
            put: takes what is new; must not block.
            clock: that of the allocations.
        """
        self._state, self._put, self._clock = state, put, clock
        self._again_s = float("inf")  # when a half of a pair turns out to be all there is
        self._seen: tuple[int, Layout, Held, Mapping[str, str]] | None = None

    def look(self) -> None:
        """Hands over what the node is like, if that is new."""
        state, now_s = self._state, self._clock()
        with state.lock:
            book = state.book
            now = book.changes, state.layout, state.held, state.unhealthy
            # Mostly they are the same objects, and what is replaced whole is mostly equal.
            if now == self._seen and now_s < self._again_s:
                self._seen = now
                return
            self._seen = now
            allocations = tuple(book.allocations.values())
            halves = {
                each.allocation_id: until_s
                for each in allocations
                if (until_s := half_until_s(each, now_s)) is not None
            }
            holdings = Holdings(allocations, book.shared_units(), frozenset(halves))
            moment = NodeMoment(state.layout, holdings, state.held, state.unhealthy)
        self._again_s = min(halves.values(), default=float("inf"))
        self._put(moment)


class Writer(Protocol):
    """Where it is written; may raise VgpuError."""

    def write(self, annotations: Mapping[str, str]) -> None:
        """Puts annotations into the Lease of the node."""


class InventoryLease:
    """Keeps the Lease of a node as the node is."""

    def __init__(self, lease: Writer, clock: Callable[[], float] = runtime.monotonic) -> None:
        """Writes nothing yet.

        Args:
            clock: seconds, from any start.
        """
        self._lease, self._clock = lease, clock
        self._news = runtime.condition()
        self._latest: NodeMoment | None = None
        self._is_new = self._stopping = False
        self._written: Mapping[str, str] | None = None
        self._due_s = float("inf")  # when it is written again although nothing is new
        self._not_before_s = float("-inf")
        self._backoff_s = 0.0
        self._said = self._left_out = ""
        self.beat = Beat()
        self._thread = runtime.thread(target=self._run, name="inventory")

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; a call under way is not waited for."""
        with self._news:
            self._stopping = True
            self._news.notify()

    def problem(self) -> str:
        """Returns why the node's inventory is not published now; empty while it is. Any thread."""
        return self._said[:_MOST_ERROR]

    def put(self, moment: NodeMoment) -> None:
        """Has it published soon; never blocks."""
        with self._news:
            if not self._is_new:
                self._not_before_s = max(self._not_before_s, self._clock() + GATHER_S)
            self._latest, self._is_new = moment, True
            self._news.notify()

    def _run(self) -> None:
        while True:
            with self._news:
                self.beat.rest()
                while not self._stopping and (wait_s := self._wait_s()) > 0:
                    self._news.wait(min(wait_s, runtime.LONGEST_WAIT_S))
                if self._stopping or self._latest is None:
                    return
                moment, self._is_new = self._latest, False
            self.beat()
            self._publish(moment)

    def _wait_s(self) -> float:
        due_s = self._not_before_s if self._is_new else max(self._due_s, self._not_before_s)
        return due_s - self._clock()

    def _publish(self, moment: NodeMoment) -> None:
        try:
            annotations = self._annotations(moment)
            if annotations == self._written and self._clock() < self._due_s:
                return
            self._lease.write(annotations)
        except VgpuError as error:
            self._fail(error.message)
        except Exception as error:  # an answer of an unforeseen form must not end the thread
            if repr(error) != self._said:
                LOGGER.exception("the node's inventory cannot be published")
            self._fail(repr(error), is_told=True)
        else:
            if self._said:
                event(logging.INFO, "the node's inventory is published again")
            self._written, self._said, self._backoff_s = annotations, "", 0.0
            # Nodes that started together must not write together for ever.
            self._try_again(LEAST_BETWEEN_S, REFRESH_S * runtime.uniform(0.8, 1.0))

    def _annotations(self, moment: NodeMoment) -> Mapping[str, str]:
        fitted = fitted_value(published_node(moment))
        if fitted.left_out and fitted.left_out != self._left_out:
            event(
                logging.WARNING,
                "the node's inventory is too large for an annotation, so less of it is published",
                left_out=fitted.left_out,
                slices=len(moment.holdings.allocations),
            )
        self._left_out = fitted.left_out
        return {f"{moment.layout.resource_domain}/{INVENTORY_KEY}": fitted.value}

    def _fail(self, problem: str, is_told: bool = False) -> None:
        if problem != self._said and not is_told:
            event(
                logging.WARNING,
                "the node's inventory is not published, schedulers use the previous one",
                reason=problem[:_MOST_ERROR],
            )
        self._said = problem
        self._backoff_s = min(BACKOFF_MOST_S, self._backoff_s * 2 or BACKOFF_FIRST_S)
        wait_s = self._backoff_s * runtime.uniform(0.5, 1.0)
        self._try_again(wait_s, wait_s)

    def _try_again(self, with_news_s: float, without_s: float) -> None:
        """Says after which time the next write is due."""
        with self._news:
            self._not_before_s = self._clock() + with_news_s
            self._due_s = self._clock() + without_s
