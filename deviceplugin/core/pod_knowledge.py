"""What is known of the container that asks, while GetPreferredAllocation is being answered.

A pod reaches the kubelet and whoever follows the pods of this node at about the same time. So where
podresources lists one that is not known yet, it is waited for, once, `PATIENCE_S` and no longer,
and only while pods become known at all: long enough for a watch that was cut to be opened again.
One that stays unknown may be the one that asks, until it is a stranger after a while: a static pod
that the API server has no mirror of.

Called by the kubelet's calls, one at a time but for a kubelet that was restarted, without the
agent's lock.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from deviceplugin.log import event
from deviceplugin.model.allocations import Allocation
from deviceplugin.model.units import gpu_of
from deviceplugin.policy.pairing import bound_pods
from deviceplugin.policy.pairing.bound_pods import Asked, BoundPods, Expected, Listing, PodName

PATIENCE_S = 0.1
_STRANGE_AFTER_S = 5.0


class PodsOfNode(Protocol):
    """Who follows the pods of this node."""

    def seen(self) -> BoundPods:
        """Returns what is known now."""
        ...

    def wait(self, until: Callable[[BoundPods], bool], timeout_s: float) -> BoundPods:
        """Returns what is known as soon as it is enough, or the time is over."""
        ...

    def hurry(self) -> None:
        """Tries at once to follow them again, where that has failed."""
        ...


class NoPods:
    """Knows of no pod."""

    def seen(self) -> BoundPods:
        """See `PodsOfNode`."""
        return BoundPods()

    def wait(self, until: Callable[[BoundPods], bool], timeout_s: float) -> BoundPods:
        """See `PodsOfNode`."""
        return self.seen()

    def hurry(self) -> None:
        """See `PodsOfNode`."""


class FirstCurrent:
    """Of several who follow the pods, the first to which news come now."""

    def __init__(self, sources: Sequence[PodsOfNode]) -> None:
        """Takes them in the order in which they are asked; at least one."""
        self._sources = sources

    def seen(self) -> BoundPods:
        """See `PodsOfNode`."""
        return self._now().seen()

    def wait(self, until: Callable[[BoundPods], bool], timeout_s: float) -> BoundPods:
        """See `PodsOfNode`."""
        return self._now().wait(until, timeout_s)

    def hurry(self) -> None:
        """See `PodsOfNode`."""
        for source in self._sources:
            source.hurry()

    def _now(self) -> PodsOfNode:
        current = (each for each in self._sources if each.seen().is_current)
        return next(current, self._sources[0])


class PodKnowledge:
    """Holds what is asked against the pods of this node."""

    def __init__(self, pods: PodsOfNode, clock: Callable[[], float]) -> None:
        """Knows no strangers yet.

        Args:
            clock: seconds, monotonic.
        """
        self._pods, self._clock = pods, clock
        self._unknown_since: dict[PodName, float] = {}

    def of(self, asked: Asked, listing: Listing, is_patient: bool) -> "KnownPods":
        """Returns what is known of the pods of this node, or will be within a moment.

        Args:
            listing: None where podresources did not tell.
            is_patient: to wait for a pod that is not known yet; each is waited for once.
        """
        known, waited_for = self._pods.seen(), frozenset(self._unknown_since)
        if is_patient and not _is_enough(known, asked, listing, waited_for):
            self._pods.hurry()
            if known.is_current:
                known = self._pods.wait(
                    lambda now: _is_enough(now, asked, listing, waited_for), PATIENCE_S
                )
        self._note_strangers(known, listing)
        return KnownPods(known, asked, listing, frozenset(self._strangers()))

    def _strangers(self) -> set[PodName]:
        now = self._clock()
        return {n for n, since in self._unknown_since.items() if now - since >= _STRANGE_AFTER_S}

    def _note_strangers(self, known: BoundPods, listing: Listing) -> None:
        if listing is None or not known.is_current:
            return
        now = self._clock()
        self._unknown_since = {
            name: self._unknown_since.get(name, now)
            for name in bound_pods.unknown(known, listing, ())
        }


def _is_enough(
    known: BoundPods, asked: Asked, listing: Listing, waited_for: frozenset[PodName]
) -> bool:
    if listing is not None:
        return not bound_pods.unknown(known, listing, waited_for)
    return bound_pods.expected(known, listing, asked) is not None


@dataclass(frozen=True, slots=True)
class KnownPods:
    """What was known when one GetPreferredAllocation came."""

    pods: BoundPods
    asked: Asked
    listing: Listing
    strangers: frozenset[PodName]

    def expected(self) -> Expected | None:
        """See `bound_pods.expected`."""
        return bound_pods.expected(self.pods, self.listing, self.asked, self.strangers)

    def is_of_another(self, partner: Allocation) -> bool:
        """See `bound_pods.is_of_another`."""
        return bound_pods.is_of_another(
            self.pods, self.listing, self.asked, partner, self.strangers
        )


def tell_where_not_honoured(expected: Expected | None, units: Iterable[str], asked: Asked) -> None:
    """Logs that a container gets units of other GPUs than were chosen for it."""
    if expected is None or not expected.gpus:
        return
    taken = set(map(gpu_of, units))
    if taken != set(expected.gpus):
        event(
            logging.INFO,
            "the GPU chosen for a pod is not available, another one is taken",
            pod=expected.pod,
            resource=f"{asked.family.name.lower()}-{asked.half}",
            chosen=" ".join(expected.gpus)[:200],
            taken=" ".join(sorted(taken)),
        )
