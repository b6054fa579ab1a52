"""What must hold on a node whatever happens to it, as functions of what was seen.

`chaos` holds processes against them, and the tests the one-process world of a seed
(``tests/support/world``). Each function returns a sentence for each breach. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from deviceplugin.model.units import gpu_of
from libvgpu.limits import ComputeMode, ContainerLimits

_WHOLE_PERCENT = 100
#: Per process: what NVML and a ledger may differ by at a quiet moment (docs/design/ledger.md).
_QUIET_BYTES = 2 << 20

Units = Mapping[str, Iterable[str]]


@dataclass(frozen=True, slots=True)
class Given:
    """What the kubelet says that a container has.

    Attributes:
        name: of pod and container.
        units: by resource.
        files: the host's path of `limits` in each answer; none of what shares its units.
    """

    name: str
    units: Units
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Slice:
    """The files of a slice, and what they said first.

    Attributes:
        name: of pod and container.
        inode: of `limits`, None where there is none.
        limits: None where they cannot be read.
    """

    name: str
    inode: int | None
    limits: ContainerLimits | None


@dataclass(frozen=True, slots=True)
class Charged:
    """What a slice's ledger and the GPU say of it, while its programs stand still."""

    name: str
    ledger_bytes: int
    gpu_bytes: int
    processes: int


@dataclass(frozen=True, slots=True)
class Books:
    """The records of a node by the container's slice, as sorted units: kubelet's and agent's."""

    kubelet: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    agent: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    directories: frozenset[str] = frozenset()


def split(given: Iterable[Given]) -> Iterator[str]:
    """Both halves of a container lie on one GPU."""
    for each in given:
        gpus = {resource: {gpu_of(u) for u in units} for resource, units in each.units.items()}
        if len(gpus) == 2 and len({frozenset(found) for found in gpus.values()}) > 1:
            yield f"{each.name} is split: {gpus}"


def given_twice(given: Iterable[Given]) -> Iterator[str]:
    """No unit, and no file of a slice, is of two containers."""
    seen: dict[str, str] = {}
    for each in given:
        for unit in (unit for units in each.units.values() for unit in units):
            if unit in seen:
                yield f"{unit} is given to {seen[unit]} and {each.name}"
            seen[unit] = each.name
        for path in each.files:
            if seen.setdefault(path, each.name) != each.name:
                yield f"{each.name} and {seen[path]} share the files of a slice"


def sums(limits: Iterable[ContainerLimits], memory_bytes: Mapping[str, int]) -> Iterator[str]:
    """What containers may use of a GPU is not more than there is, and all of one family.

    Args:
        limits: of all slices.
        memory_bytes: of each GPU.
    """
    core: dict[str, int] = {}
    memory: dict[str, int] = {}
    families: dict[str, str] = {}
    for container in limits:
        for device in container.devices:
            uuid = device.uuid
            if families.setdefault(uuid, container.family.name) != container.family.name:
                yield f"{uuid} has {families[uuid]} and {container.family.name} slices"
            has_share = device.compute_mode is not ComputeMode.OFF
            core[uuid] = core.get(uuid, 0) + (device.reserved_percent if has_share else 0)
            memory[uuid] = memory.get(uuid, 0) + device.memory_limit_bytes
    for uuid, percent in core.items():
        if percent > _WHOLE_PERCENT:
            yield f"{uuid} has slices of {percent} % of its compute"
        if memory[uuid] > memory_bytes[uuid]:
            yield f"{uuid} of {memory_bytes[uuid]} bytes has slices of {memory[uuid]} bytes"


def changed(first: Slice, now: Slice) -> Iterator[str]:
    """The files of a slice stay the same files and say the same for as long as its pod lives."""
    if now.inode is None:
        yield f"{first.name} has lost its slice: its limits are not there"
    elif now.limits is None:
        yield f"{first.name} has limits that cannot be read"
    elif now.inode != first.inode:
        yield f"{first.name} is detached: its limits are another file"
    elif first.limits is not None and _of(now.limits) != _of(first.limits):
        yield f"{first.name} has limits {_of(now.limits)} that were {_of(first.limits)}"


def _of(limits: ContainerLimits) -> list[tuple[str, int, int]]:
    return [(d.uuid, d.memory_limit_bytes, d.core_percent) for d in limits.devices]


def unlike_asked(
    name: str, core: int, memory_bytes: tuple[int, ...], limits: ContainerLimits
) -> Iterator[str]:
    """The limits of a slice are those that were asked for.

    Args:
        memory_bytes: what the units asked for may be, by the units that are possible.
    """
    if len(limits.devices) != 1:
        yield f"{name} has {len(limits.devices)} GPUs"
        return
    (device,) = limits.devices
    if device.core_percent != core:
        yield f"{name} asked for {core} core and has {device.core_percent}"
    if device.memory_limit_bytes not in memory_bytes:
        yield f"{name} asked for {memory_bytes} bytes and has {device.memory_limit_bytes}"


def books_differ(books: Books) -> Iterator[str]:
    """Kubelet, agent and run directory know the same slices with the same units."""
    for name in sorted({*books.kubelet, *books.agent, *books.directories}):
        kubelet, agent = books.kubelet.get(name), books.agent.get(name)
        if kubelet is None:
            where = "the agent's book" if agent is not None else "the run directory"
            yield f"slice {name} is in {where} and of no pod"
        elif agent is None:
            yield f"slice {name} of a pod is not in the agent's book"
        elif kubelet != agent:
            yield f"slice {name} has units {kubelet} by the kubelet and {agent} by the agent"
        elif name not in books.directories:
            yield f"slice {name} of a pod is not in the run directory"


def charged_wrong(charged: Iterable[Charged]) -> Iterator[str]:
    """A ledger says what the GPU says."""
    for each in charged:
        if abs(each.ledger_bytes - each.gpu_bytes) > _QUIET_BYTES * max(1, each.processes):
            yield (
                f"{each.name} is charged {each.ledger_bytes} bytes and has {each.gpu_bytes} "
                f"in {each.processes} processes"
            )


def above_limit(name: str, used_bytes: int, limits: ContainerLimits) -> Iterator[str]:
    """No ledger is above its limit."""
    (device,) = limits.devices
    if used_bytes > device.memory_limit_bytes:
        yield f"{name} holds {used_bytes} bytes of {device.memory_limit_bytes}"


def withdrawn(given: Iterable[Given], healthy: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """What a container has is healthy."""
    whole = {resource: frozenset(units) for resource, units in healthy.items()}
    for each in given:
        for resource, units in each.units.items():
            sick = sorted(set(units) - whole.get(resource, frozenset()))
            if sick:
                yield f"{each.name} has {len(sick)} units that are not healthy, as {sick[0]}"


def offered_wrong(offered: Mapping[str, int], wanted: Mapping[str, int]) -> Iterator[str]:
    """Where nobody has anything, all is offered as the config says."""
    has = {resource: count for resource, count in offered.items() if count}
    if has != wanted:
        yield f"{has} is offered, the config says {dict(wanted)}"
