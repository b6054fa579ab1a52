"""The election's Lease of earlier releases, in the namespace of the node agents.

Every agent may write it, so nothing is decided by it any more. While an upgrade is under way,
replicas of an earlier release still elect by it. The leader holds it too, so that these do not bind
and pass binds on to the leader. It may be deleted once they have gone; it is not made again.
"""

import logging
from http import HTTPStatus
from typing import Any

import msgspec

from deviceplugin.kube.api_client import ApiRefused, ApiServer
from deviceplugin.kube.raw_calls import call
from deviceplugin.log import event
from libvgpu.decoding import json_decoder


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str | None = None


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None


class _Lease(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


_LEASE = json_decoder(_Lease)


class FormerLease:
    """One such Lease; of the election's thread."""

    def __init__(self, api: ApiServer, namespace: str, name: str) -> None:
        """Asks nothing yet."""
        self._api, self._name = api, name
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
        self._is_refused = False

    def take(self, spec: Any, known: frozenset[str]) -> bool:
        """Takes the Lease; returns whether a replica of an earlier release may have had it.

        Args:
            spec: what it says from now on.
            known: holders of the present Lease.

        Raises:
            ApiUnreachable: there was no answer.
        """
        try:
            found = _LEASE.decode(call(self._api, "GET", self._path))
            version = found.metadata.resource_version
            self._patch({"metadata": {"resourceVersion": version}, "spec": spec})
        except ApiRefused as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return False
            if error.status != HTTPStatus.CONFLICT:  # without the right nobody can have it
                self._say(error)
                return error.status != HTTPStatus.FORBIDDEN
            self.hold(spec)  # somebody was quicker, so it may be theirs
            return True
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            self.hold(spec)
            return True
        return (found.spec.holder_identity or "") not in known

    def hold(self, spec: Any) -> None:
        """Writes it, whoever has it now and whatever it says.

        Raises:
            ApiUnreachable: there was no answer.
        """
        try:
            self._patch({"spec": spec})
        except ApiRefused as error:
            if error.status != HTTPStatus.NOT_FOUND:
                self._say(error)

    def _patch(self, patch: Any) -> None:
        call(self._api, "PATCH", self._path, patch)

    def _say(self, error: ApiRefused) -> None:
        """Says once that it cannot be held: an agent that spoils it must not stop the election."""
        if not self._is_refused:
            self._is_refused = True
            event(
                logging.WARNING,
                "the election's Lease of earlier releases cannot be held",
                lease=self._name,
                reason=error.message,
            )
