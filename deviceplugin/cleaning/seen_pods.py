"""What the cleaning reads of objects of the API server, and which pods keep a node as it is."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from deviceplugin.pages.published import COMPONENT_LABEL

HOST_PART = "clean-host"
AGENT_PARTS = ("agent", "mps")
#: Of resources of our domain, what the agent gives.
_OURS = ("gpu", "mig-", "mps-", "vgpu-")


class _Part(msgspec.Struct, rename="camel"):
    """An object; keys that are not named are passed over."""


class Metadata(_Part):
    """What every object has."""

    name: str
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None


class _Resources(_Part):
    limits: dict[str, str | int] = {}


class _Container(_Part):
    resources: _Resources = msgspec.field(default_factory=_Resources)


class _Spec(_Part):
    node_name: str = ""
    containers: list[_Container] = []
    init_containers: list[_Container] = []


class _Terminated(_Part):
    exit_code: int = 0
    message: str = ""


class _State(_Part):
    terminated: _Terminated | None = None


class _ContainerStatus(_Part):
    state: _State = msgspec.field(default_factory=_State)


class _Status(_Part):
    phase: str = ""
    container_statuses: list[_ContainerStatus] = []


class Named(_Part):
    """A Node, a Lease or a DaemonSet."""

    metadata: Metadata


class SeenPod(_Part):
    """A pod, as far as it matters here."""

    metadata: Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def has_ended(self) -> bool:
        """Whether its containers never run again."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def last_words(self) -> str:
        """What its container said when it ended."""
        ended = [each.state.terminated for each in self.status.container_statuses]
        return " ".join(each.message.strip() for each in ended if each is not None)

    @property
    def is_agent(self) -> bool:
        """Whether it is an agent or an MPS runner of some release of the chart."""
        labels = self.metadata.labels
        is_ours = labels.get("app.kubernetes.io/name") == "vgpu"
        return is_ours and labels.get(COMPONENT_LABEL) in AGENT_PARTS

    def asks(self, domain: str) -> bool:
        """Returns whether a container asks for a slice or a device of ours."""
        return any(
            name.startswith(tuple(f"{domain}/{ours}" for ours in _OURS)) and str(amount) != "0"
            for container in (*self.spec.containers, *self.spec.init_containers)
            for name, amount in container.resources.limits.items()
        )


@dataclass(frozen=True, slots=True)
class SeenPods:
    """The pods of the cluster that matter, by node.

    Attributes:
        agents: pods of agent and MPS runner.
        needing: pods that need what would be removed: with a slice that they have or will have,
            and agents of other releases.
        cleaning: what cleans the node.
    """

    agents: Mapping[str, SeenPod]
    needing: Mapping[str, SeenPod]
    cleaning: Mapping[str, SeenPod]
