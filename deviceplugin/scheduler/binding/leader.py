"""Which replica binds: leader election by a Lease, as Kubernetes' own components do it.

Whoever holds the Lease renews it every `RETRY_S`; who cannot for `RENEW_S` leads no more, by its
own clock and whether its thread runs or not. Another takes the Lease once it has seen no change of
it for its duration (`LEASE_S`), again by its own clock: the times in the Lease are for people. Of
two that write at one time the API server refuses one, by the resource version. Nothing stops a call
that a leader began before; `SETTLE_S` and the distance of the two times leave it some seconds to
end and to be told by the watch.

Whoever can write the Lease decides who binds, so it lies in a namespace where node agents can write
nothing. Replicas of earlier releases go by another one (`former_lease`). A leader takes that as
well, and if one of them may have had it, waits until they have noticed.
"""

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import msgspec

from deviceplugin.kube.api_client import ApiRefused, ApiServer, ApiUnreachable
from deviceplugin.kube.raw_calls import call
from deviceplugin.log import event
from libvgpu.decoding import json_decoder

from .former_lease import FormerLease

LEASE_S, RENEW_S, RETRY_S = 15.0, 10.0, 2.0
#: A leader after another waits this long: its watch then has what the other did last.
SETTLE_S = 1.0
_LONGEST_LEASE_S = 300.0
_MOST_TRANSITIONS = (1 << 31) - 1  # as the API server takes them


class LeaseSpec(msgspec.Struct, rename="camel"):
    """Who holds a Lease."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct):
    """A Lease; metadata goes back as it came."""

    metadata: dict[str, Any]
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


_LEASE = json_decoder(Lease)


@dataclass(frozen=True, slots=True)
class Identity:
    """A replica, and where it takes the binds that others forward to it.

    Attributes:
        name: of this very process, never used again.
        address: host and port.
    """

    name: str
    address: str

    def __str__(self) -> str:
        return f"{self.name}/{self.address}"

    @classmethod
    def parsed(cls, text: str) -> "Identity":
        """Returns what a Lease says of its holder; one of another kind has no address."""
        name, separator, address = text.rpartition("/")
        return cls(name, address) if separator else cls(text, "")


class Election:
    """One candidate. `step` is for its thread alone, all else for any."""

    def __init__(
        self,
        api: ApiServer,
        namespace: str,
        name: str,
        identity: Identity,
        clock: Callable[[], float] = time.monotonic,
        former: FormerLease | None = None,
    ) -> None:
        """Begins with `start`.

        Args:
            name: of the Lease, in ``namespace``.
            clock: never goes back.
            former: that of earlier releases; None if it is the same one.
        """
        self._api, self._clock = api, clock
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._name, self._identity, self._former = name, identity, former
        self._had_it = ""  # who held the Lease before this replica
        self._seen: Lease | None = None
        self._seen_at_s = 0.0
        #: It leads between these two.
        self._leads_s = (0.0, 0.0)
        self._led = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="election", daemon=True)

    def start(self) -> None:
        """Becomes a candidate."""
        self._thread.start()

    def stop(self) -> None:
        """Leads no more and gives the Lease back; end what a leader does before."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self.release()

    @property
    def is_leader(self) -> bool:
        """Whether this replica may bind at this moment."""
        begin_s, end_s = self._leads_s
        return begin_s <= self._clock() < end_s

    @property
    def leader_address(self) -> str:
        """Where the leader takes binds, as the Lease says; empty where there is none."""
        seen = self._seen
        if seen is None or not self._is_valid(seen):
            return ""
        return Identity.parsed(seen.spec.holder_identity or "").address

    def step(self) -> bool:
        """Tries once to get or to renew the Lease; returns whether it is held now."""
        began_s = self._clock()
        first_s, end_s = self._leads_s
        begins, settles_s = began_s >= end_s, SETTLE_S
        try:
            held = self._try()
            if held and self._hold_former(begins):
                settles_s = RENEW_S
        except (ApiUnreachable, ApiRefused) as error:
            held = False
            event(logging.DEBUG, "the leader's Lease is not renewed", reason=error.message)
        if held:
            if begins:
                first_s = self._clock() + settles_s
            self._leads_s = (first_s, began_s + RENEW_S)
        elif self._seen is not None and self._seen.spec.holder_identity != str(self._identity):
            self._leads_s = (0.0, 0.0)
        self._say()
        return held

    def release(self) -> None:
        """Gives the Lease back, so that another need not wait for its end."""
        self._leads_s = (0.0, 0.0)
        seen = self._seen
        if seen is None or seen.spec.holder_identity != str(self._identity):
            return
        now = _now()
        spec = LeaseSpec("", 1, now, now, seen.spec.lease_transitions)
        try:
            self._seen = self._write("PUT", Lease(seen.metadata, spec))
            if self._former is not None:
                self._former.hold(spec)
        except (ApiUnreachable, ApiRefused) as error:
            event(logging.INFO, "the leader's Lease is not given back", reason=error.message)
        self._say()

    def _try(self) -> bool:
        seen = self._seen
        if seen is not None and seen.spec.holder_identity == str(self._identity):
            try:
                return self._take(seen)
            except ApiRefused as error:
                if error.status not in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND):
                    raise
        try:
            found = _LEASE.decode(call(self._api, "GET", f"{self._folder}/{self._name}"))
        except ApiRefused as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return self._take(None)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise ApiUnreachable(f"the Lease {self._name} is malformed: {error}") from None
        if self._seen is None or found.spec != self._seen.spec:
            self._seen_at_s = self._clock()
        self._seen = found
        holder = found.spec.holder_identity
        if holder and holder != str(self._identity) and self._is_valid(found):
            return False
        return self._take(found)

    def _hold_former(self, begins: bool) -> bool:
        """Holds the Lease of earlier releases; returns whether one of these may still lead by it.

        Args:
            begins: this replica did not lead before.
        """
        if self._former is None or self._seen is None:
            return False
        if begins:
            known = frozenset(("", str(self._identity), self._had_it))
            return self._former.take(self._seen.spec, known)
        self._former.hold(self._seen.spec)
        return False

    def _take(self, before: Lease | None) -> bool:
        """Writes that this replica holds the Lease; another that wrote before wins."""
        now = _now()
        spec = LeaseSpec(str(self._identity), round(LEASE_S), now, now, 0)
        method, metadata = "POST", dict[str, Any](name=self._name)
        if before is not None:
            method, metadata = "PUT", before.metadata
            transitions = before.spec.lease_transitions or 0
            if before.spec.holder_identity == spec.holder_identity:
                spec.acquire_time = before.spec.acquire_time
                spec.lease_transitions = transitions
            else:
                spec.lease_transitions = min(transitions + 1, _MOST_TRANSITIONS)
        began_s = self._clock()
        self._seen = self._write(method, Lease(metadata, spec))
        self._seen_at_s = began_s
        self._had_it = (before.spec.holder_identity if before is not None else None) or ""
        return True

    def _write(self, method: str, lease: Lease) -> Lease:
        path = self._folder if method == "POST" else f"{self._folder}/{self._name}"
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": lease.metadata,
            "spec": lease.spec,
        }
        answer = call(self._api, method, path, body)
        try:
            return _LEASE.decode(answer)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise ApiUnreachable(f"the answer to the Lease is malformed: {error}") from None

    def _is_valid(self, lease: Lease) -> bool:
        duration_s = min(_LONGEST_LEASE_S, lease.spec.lease_duration_seconds or 0)
        return self._clock() < self._seen_at_s + duration_s

    def _say(self) -> None:
        leads = self._leads_s[1] > self._clock()
        if leads != self._led:
            event(
                logging.INFO,
                "this replica binds pods from now on" if leads else "this replica binds no more",
                identity=self._identity,
            )
        self._led = leads

    def _run(self) -> None:
        while not self._stopping.is_set():
            held = self.step()
            # Candidates that started together must not ask together for ever.
            # A delay, no secret.
            self._stopping.wait(RETRY_S * (1.0 if held else random.uniform(1.0, 2.2)))  # noqa: S311


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
