"""The kinds that the simulated API server keeps, and how their paths look."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of objects.

    Attributes:
        group: of its API; empty for the core one.
        fields: which fieldSelectors may name besides name and namespace, as paths with dots.
        needs_version: an update must say which version it was made of.
    """

    name: str
    plural: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    fields: tuple[str, ...] = ()
    needs_version: bool = False

    @property
    def api_version(self) -> str:
        """As objects have it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """The path of its API."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "") -> str:
        """Returns the path of one object, or of all without a name."""
        place = f"{self.root}/namespaces/{namespace}" if namespace else self.root
        return f"{place}/{self.plural}/{name}" if name else f"{place}/{self.plural}"


POD = Kind(
    "Pod", "pods", fields=("spec.nodeName", "spec.schedulerName", "status.phase", "metadata.uid")
)
NODE = Kind("Node", "nodes", namespaced=False)
EVENT = Kind("Event", "events")
LEASE = Kind("Lease", "leases", "coordination.k8s.io", needs_version=True)
DAEMON_SET = Kind("DaemonSet", "daemonsets", "apps")
NODE_FEATURE = Kind("NodeFeature", "nodefeatures", "nfd.k8s-sigs.io", "v1alpha1")
KINDS = (POD, NODE, EVENT, LEASE, DAEMON_SET, NODE_FEATURE)
