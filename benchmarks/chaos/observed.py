"""What is read of a `chaos` node, and held against the invariants."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from deviceplugin.model.units import gpu_of
from deviceplugin.store import checkpoint, journal
from libvgpu import region
from libvgpu.allocation_dirs import list_allocations
from libvgpu.errors import RegionError
from libvgpu.limits import ContainerLimits
from vgpuctl.agent_client import agent_report

from . import invariants
from .config import UNITS_MIB
from .invariants import Books, Charged
from .node import MIB, ChaosNode
from .tenants import Tenant


def always(node: ChaosNode, tenants: Sequence[Tenant]) -> Iterator[str]:
    """Holds what must always hold; ``tenants`` live all the while."""
    given = [each.given() for each in tenants]
    yield from invariants.given_twice(given)
    started = [each for each in tenants if each.first is not None]
    yield from invariants.split(each.given() for each in started)
    for tenant in started:
        assert tenant.first is not None
        now = tenant.files()
        yield from invariants.changed(tenant.first, now)
        if now.limits is not None and not tenant.attack:
            yield from _above_limit(tenant, now.limits)
    sizes = {device.uuid: device.profile.memory_bytes for device in node.machine.devices}
    yield from invariants.sums(_limits_in_force(node), sizes)


def _above_limit(tenant: Tenant, limits: ContainerLimits) -> Iterator[str]:
    try:
        (device,) = region.read_usage(tenant.directory).devices
    except RegionError as error:
        yield f"{tenant.name} has an unreadable book: {error.message}"
        return
    yield from invariants.above_limit(tenant.name, device.used_bytes, limits)


def _limits_in_force(node: ChaosNode) -> list[ContainerLimits]:
    """Returns the limits of all slices that were there all the while."""
    found = []
    for each in list_allocations(node.run_dir):
        try:
            found.append((each.directory, region.read_limits(each.directory).limits))
        except RegionError:
            continue  # it goes
    return [limits for directory, limits in found if (directory / "meta.json").exists()]


def not_recorded(node: ChaosNode, tenant: Tenant) -> Iterator[str]:
    """What was answered is on the disk: all units of a pod that was admitted."""
    recorded = {u for units in _agents_book(node).values() for u in units}
    missing = {u for units in tenant.given().units.values() for u in units} - recorded
    if missing:
        yield f"{tenant.name} has {len(missing)} units that are not on disk, as {min(missing)}"


def as_asked(tenant: Tenant) -> Iterator[str]:
    """A container that starts has what its pod asked for, and all that is mounted is there."""
    assert tenant.first is not None and tenant.options is not None
    asked = {r.rpartition("-")[2]: n for r, n in tenant.pod.containers[0].manifest.limits.items()}
    yield from tenant.options.conflicts
    if tenant.first.limits is None:
        yield f"{tenant.name} starts without limits"
        return
    sizes = tuple(asked["memory"] * unit * MIB for unit in UNITS_MIB)
    yield from invariants.unlike_asked(tenant.name, asked["core"], sizes, tenant.first.limits)


def _agents_book(node: ChaosNode) -> dict[str, tuple[str, ...]]:
    path = node.state_dir / checkpoint.NAME
    found = journal.replay(path.read_bytes()).allocations if path.exists() else ()
    return {each.allocation_id: tuple(sorted((*each.core, *each.memory))) for each in found}


def books_differ(node: ChaosNode, tenants: Sequence[Tenant]) -> Iterator[str]:
    """Kubelet, agent and run directory know the same slices, and none of pods that have gone."""
    kubelet = {}
    for tenant in tenants:
        units = (unit for units in tenant.given().units.values() for unit in units)
        kubelet[tenant.directory.name] = tuple(sorted(units))
    directories = frozenset(each.directory.name for each in list_allocations(node.run_dir))
    yield from invariants.books_differ(Books(kubelet, _agents_book(node), directories))


def at_rest(node: ChaosNode, tenants: Sequence[Tenant]) -> Iterator[str]:
    """Holds what must hold when nothing goes wrong and all programs stand still."""
    problem = node.problem()
    if problem:
        yield problem
        return
    yield from books_differ(node, tenants)
    given = [each.given() for each in tenants]
    resources = {resource for each in given for resource in each.units}
    healthy = {resource: node.kubelet.healthy_units(resource) for resource in resources}
    yield from invariants.withdrawn(given, healthy)
    yield from invariants.charged_wrong(_charged(node, tenants))
    yield from _accused(node)


def _charged(node: ChaosNode, tenants: Iterable[Tenant]) -> Iterator[Charged]:
    held: dict[int, int] = {}
    for device in node.machine.books():
        for client in device.clients:
            held[client.pid] = held.get(client.pid, 0) + client.memory_bytes * client.alive
    for tenant in tenants:
        if tenant.programs:
            pids = [program.process.pid for program in tenant.programs]
            gpu_bytes = sum(held.pop(pid, 0) for pid in pids)
            (device_usage,) = region.read_usage(tenant.directory).devices
            yield Charged(tenant.name, device_usage.used_bytes, gpu_bytes, len(pids))
    for pid, size in held.items():
        yield Charged(f"process {pid} of nobody", 0, size, 0)


def _accused(node: ChaosNode) -> Iterator[str]:
    """Nobody is accused who uses the shim."""
    watch = agent_report(node.run_dir).watch
    for each in (*watch.bypassing, *watch.foreign):
        yield f"process {each.pid} of {each.owner or 'nobody'} is accused: {each.how}"
    for charge in watch.charged:
        yield f"{charge.owner} is charged {charge.memory_bytes} bytes that its ledger has"


def has_room(node: ChaosNode, tenants: Sequence[Tenant], asked: Mapping[str, int]) -> bool:
    """Returns whether one GPU has all that a pair asks for, by what the kubelet may give."""
    held = {u for each in tenants for units in each.given().units.values() for u in units}
    free = Counter(
        (gpu_of(unit), resource)
        for resource in asked
        for unit in node.kubelet.healthy_units(resource)
        if unit not in held
    )
    return any(all(free[uuid, r] >= n for r, n in asked.items()) for uuid in node.uuids)


def at_end(node: ChaosNode) -> Iterator[str]:
    """Holds what must hold when all pods have gone."""
    yield from at_rest(node, ())
    yield from invariants.offered_wrong(node.kubelet.allocatable(), node.sharing.offered())
    for device in node.machine.books():
        if device.memory_used_bytes:
            yield f"{device.uuid} has {device.memory_used_bytes} bytes of nobody"
