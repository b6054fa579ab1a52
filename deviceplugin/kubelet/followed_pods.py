"""Who tells of the pods of this node: the API server, or else the kubelet's Pods API.

The API server tells of each without being asked, so it comes first; where it cannot be asked, or is
away, the kubelet lists them when a pod is being admitted.
"""

import logging
from pathlib import Path

from deviceplugin.core.pod_knowledge import FirstCurrent
from deviceplugin.heartbeats import Beat
from deviceplugin.kube.api_client import ApiServer
from deviceplugin.kube.node_pods import NodePods
from deviceplugin.log import event

from .pods_api import PodsApi

#: Later lists have the patience of an admission.
_FIRST_LIST_S = 1.0


class FollowedPods:
    """The two of them.

    Attributes:
        source: what the core asks.
        beat: of the thread that follows the API server.
    """

    def __init__(
        self, api: ApiServer | None, kubelet_dir: Path, node_name: str, domain: str
    ) -> None:
        """Follows nothing yet.

        Args:
            kubelet_dir: the kubelet's root.
            node_name: of the Node.
            domain: of the resources.
        """
        self._node_pods = NodePods(api, node_name, domain) if api else None
        self._pods_api = PodsApi(kubelet_dir, node_name, domain)
        self.beat = self._node_pods.beat if self._node_pods else Beat()
        told = [self._node_pods] if self._node_pods else []
        self.source = FirstCurrent([*told, self._pods_api])

    def start(self) -> None:
        """Follows the pods from now on, or says that nobody tells."""
        if self._pods_api.is_there:
            self._pods_api.wait(lambda pods: True, _FIRST_LIST_S)  # the first takes the longest
        if self._node_pods:
            self._node_pods.start()
        elif self.problem():
            event(
                logging.INFO,
                "the requests of this node's pods are not known, one half alone decides the GPU",
                reason=self.problem(),
            )

    def stop(self) -> None:
        """Ends it."""
        if self._node_pods:
            self._node_pods.stop()
        self._pods_api.close()

    def problem(self) -> str:
        """Returns why nobody tells of the pods now; empty while somebody does."""
        problem = "there is no API server, or no service account to ask it with"
        if self._node_pods:
            problem = self._node_pods.problem
        if problem and self._pods_api.is_there:
            return self._pods_api.problem
        return problem
