"""How a resource is offered, in the labels of GPU Feature Discovery. Pure."""

from collections.abc import Iterable, Mapping

from .offered import Offered, SharedResource, SharingStrategy

PREFIX = "nvidia.com/"
MIB = 1 << 20
Labels = dict[str, str]


def named(resource: str, values: Mapping[str, object]) -> Labels:
    """Returns the labels of one resource, such as ``gpu``."""
    return {f"{PREFIX}{resource}.{key}": str(value) for key, value in values.items()}


def resource_of(uuids: Iterable[str], offered: Offered) -> SharedResource | None:
    """Returns how devices are offered, by most replicas where in several ways."""
    wanted = frozenset(uuids)
    found = [r for r in offered.resources if r.uuids & wanted]
    return max(found, key=lambda r: r.replicas, default=None)


def sharing_of(
    resource: SharedResource | None, uuids: Iterable[str], offered: Offered
) -> tuple[int, SharingStrategy, tuple[str, ...]]:
    """Returns replicas, strategy, and what ends the product."""
    if resource is None:
        held = frozenset(uuids)
        strategies = (part.strategy for part in offered.slices if part.uuid in held)
        return 0, next(strategies, SharingStrategy.NONE), ()
    if resource.replicas < 2:
        return 1, SharingStrategy.NONE, ()
    return resource.replicas, resource.strategy, () if resource.renamed else ("SHARED",)
