"""The Lease of a node in the agents' namespace: what is published of it stands in an annotation.

It belongs to the Node, where the agent may ask for its UID, and so goes with it. That is said when
the Lease is made and not touched later: some clusters ask for more rights to change it.
"""

from collections.abc import Mapping
from http import HTTPStatus

from lightkube.models.coordination_v1 import LeaseSpec
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.resources.coordination_v1 import Lease
from lightkube.types import PatchType

from deviceplugin.pages.published import COMPONENT, COMPONENT_LABEL

from .api_client import ApiRefused, ApiServer

_LABELS = {COMPONENT_LABEL: COMPONENT}


class NodeLease:
    """Writes one Lease."""

    def __init__(self, api: ApiServer, node: str) -> None:
        """Asks nothing yet.

        Args:
            node: name of this Node, and so of its Lease.
        """
        self._api, self._node = api, node

    def write(self, annotations: Mapping[str, str]) -> None:
        """Puts annotations into the Lease, which is made where it is not there.

        Raises:
            ApiUnreachable: there was no answer.
            ApiRefused: they are not taken.
        """
        if self._is_patched(annotations):
            return
        try:
            self._create(annotations)
        except ApiRefused as error:  # somebody, or a call whose answer was lost, made it meanwhile
            if error.status != HTTPStatus.CONFLICT or not self._is_patched(annotations):
                raise

    def _is_patched(self, annotations: Mapping[str, str]) -> bool:
        """Merges into the Lease; returns False where there is none."""
        patch = {"metadata": {"labels": _LABELS, "annotations": dict(annotations)}}
        try:
            self._api.ask(
                lambda client: client.patch(
                    Lease,
                    self._node,
                    patch,
                    namespace=self._api.namespace,
                    patch_type=PatchType.MERGE,
                )
            )
        except ApiRefused as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return False
            raise
        return True

    def _create(self, annotations: Mapping[str, str]) -> None:
        uid = self._node_uid()
        owner = OwnerReference(apiVersion="v1", kind="Node", name=self._node, uid=uid)
        lease = Lease(
            metadata=ObjectMeta(
                name=self._node,
                namespace=self._api.namespace,
                labels=_LABELS,
                annotations=dict(annotations),
                ownerReferences=[owner] if uid else None,
            ),
            spec=LeaseSpec(holderIdentity=self._node),
        )
        self._api.ask(lambda client: client.create(lease))

    def _node_uid(self) -> str:
        """Returns the UID, empty where the agent may not ask or there is no such Node."""
        try:
            found = self._api.node(self._node)
        except ApiRefused:
            return ""
        return (found.uid if found is not None else None) or ""
