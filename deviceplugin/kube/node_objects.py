"""What the labels of the node need of the API server: the Node, and NFD's NodeFeature of it."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Node
from lightkube.types import PatchType

from .api_client import ApiRefused, ApiServer

NodeFeature = create_namespaced_resource(
    "nfd.k8s-sigs.io", "v1alpha1", "NodeFeature", "nodefeatures"
)


class NodeObjects:
    """Reads and changes what the API server has of the node."""

    def __init__(self, api: ApiServer) -> None:
        """Asks nothing yet."""
        self._api = api

    def node_metadata(self, node: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Returns labels and annotations of a Node.

        Raises:
            ApiUnreachable: there was no answer.
            ApiRefused: the agent may not ask, or there is no such Node.
        """
        found = self._api.node(node)
        if found is None:
            raise ApiRefused(HTTPStatus.NOT_FOUND, f"there is no Node {node}")
        return found.labels or {}, found.annotations or {}

    def patch_node_metadata(self, node: str, values: Mapping[str, Any]) -> None:
        """Merges into the metadata of a Node; None removes a value.

        Raises:
            ApiUnreachable: there was no answer.
            ApiRefused: they are not taken.
        """
        patch = {"metadata": dict(values)}
        self._api.ask(lambda client: client.patch(Node, node, patch, patch_type=PatchType.MERGE))

    def node_feature(self, name: str) -> Mapping[str, Any] | None:
        """Returns a NodeFeature of the agent's namespace, None where there is none.

        Raises:
            ApiUnreachable: there was no answer.
            ApiRefused: the agent may not ask.
        """
        try:
            found = self._api.ask(
                lambda client: client.get(NodeFeature, name, namespace=self._api.namespace)
            )
        except ApiRefused as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise
        return dict(found)

    def create_node_feature(self, name: str, values: Mapping[str, Any]) -> None:
        """Makes a NodeFeature in the agent's namespace.

        Args:
            values: ``labels`` of the object, and ``spec``.

        Raises:
            ApiUnreachable: there was no answer.
            ApiRefused: it is not taken; with 404 where the cluster has no NFD.
        """
        metadata = ObjectMeta(
            name=name, namespace=self._api.namespace, labels=dict(values["labels"])
        )
        feature = NodeFeature(metadata=metadata, spec=values["spec"])
        self._api.ask(lambda client: client.create(feature))

    def patch_node_feature(self, name: str, values: Mapping[str, Any]) -> None:
        """Merges into a NodeFeature; None removes a value.

        Raises:
            ApiUnreachable: there was no answer.
            ApiRefused: they are not taken.
        """
        self._api.ask(
            lambda client: client.patch(
                NodeFeature,
                name,
                dict(values),
                namespace=self._api.namespace,
                patch_type=PatchType.MERGE,
            )
        )
