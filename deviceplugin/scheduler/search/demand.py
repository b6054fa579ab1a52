"""What a pod asks of a node, without whose it is: the question that nodes are judged by. Values.

Pods of one controller ask the same question, so an answer to one is an answer to all (`verdicts`).
What no node can ever give is refused here, in the order of the admission policy's rules.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from deviceplugin.model.pod_requests import ContainerKind, ContainerRequest, PodRequest
from deviceplugin.model.units import CORE_UNITS_PER_GPU, Half, resource_name
from libvgpu.limits import Family

from .plans import Refusal, short
from .wishes import Wishes


@dataclass(frozen=True, slots=True)
class Ask:
    """What one container asks for: a fraction of one family, or whole devices, or neither.

    Attributes:
        family: of its fraction; None without one.
        devices: how many of each resource of whole devices, by name.
    """

    kind: ContainerKind
    family: Family | None = None
    core: int = 0
    memory: int = 0
    devices: tuple[tuple[str, int], ...] = ()

    def of(self, half: Half) -> int:
        """Returns how much it asks for of a half."""
        return self.core if half is Half.CORE else self.memory

    @property
    def is_lone(self) -> bool:
        """It asks for core or memory alone."""
        return (self.core == 0) != (self.memory == 0)


@dataclass(frozen=True, slots=True)
class Demand:
    """The question.

    Attributes:
        domain: of the resources.
        asks: of the containers in the order of their admission.
    """

    domain: str
    asks: tuple[Ask, ...]
    wishes: Wishes


def demand_of(request: PodRequest, wishes: Wishes, domain: str) -> Demand | Refusal:
    """Returns what a pod asks; a refusal where no node can ever give it."""
    asks: list[Ask] = []
    for container in request.containers:
        families = container.families(domain)
        devices = tuple(sorted(container.devices(domain).items()))
        problem = _mixture(container, domain, families, [name for name, _ in devices])
        if problem is None and families:
            core, memory = (container.amount(domain, families[0], half) for half in Half)
            asks.append(Ask(container.kind, families[0], core, memory))
            problem = _amounts(container, domain, asks[-1])
        elif problem is None:
            asks.append(Ask(container.kind, devices=devices))
        if problem is not None:
            return Refusal(short(problem), resolvable=False)
    confused = _confused(asks)
    if confused is not None:
        first, second = (request.containers[place].name for place in confused)
        half = Half.CORE if asks[confused[0]].core else Half.MEMORY
        return Refusal(
            short(
                f"container {first} asks for {half} alone, and agents would take {half.other} of "
                f"{second} for its own, since init containers pass units on; let {first} ask for "
                "both"
            ),
            resolvable=False,
        )
    return Demand(domain, tuple(asks), wishes)


def _confused(asks: Sequence[Ask]) -> tuple[int, int] | None:
    """Returns two containers, the first with one half alone, of which an agent may take the other
    half of the second for that of the first; None where it will not.

    That of a container that comes next in the family, if it gets all of it of init containers, so
    that the agent is not asked for a preference and cannot see whose turn it is. And that of any
    which may be meant by the same amount, after an init container: of those podresources shows
    nothing.
    """
    passed_on: dict[tuple[Family, Half], int] = {}
    last: dict[Family, int] = {}
    for place, ask in enumerate(asks):
        if ask.family is None:
            continue
        before = last.get(ask.family)
        if before is not None and asks[before].is_lone:
            first = asks[before]
            half = Half.CORE if first.core else Half.MEMORY
            amount = ask.of(half.other)
            if 0 < amount <= passed_on.get((ask.family, half.other), 0):
                return before, place
            if first.kind is ContainerKind.INIT and any(
                each.of(half.other) == amount > 0 and each.of(half) == first.of(half)
                for each in asks[place:]
                if each.family is ask.family
            ):
                return before, place
        last[ask.family] = place
        for half in Half:
            had = passed_on.get((ask.family, half), 0)
            is_init = ask.kind is ContainerKind.INIT
            left = max(had, ask.of(half)) if is_init else max(0, had - ask.of(half))
            passed_on[ask.family, half] = left
    return None


def _mixture(
    container: ContainerRequest, domain: str, families: Sequence[Family], devices: Sequence[str]
) -> str | None:
    if len(families) > 1:
        return (
            f"container {container.name} asks for {domain}/vgpu-* and {domain}/mps-*: a container "
            "has one slice, of one family"
        )
    if families and devices:
        return (
            f"container {container.name} asks for a slice and for {devices[0]}: a container has "
            "either slices or whole devices"
        )
    return None


def _amounts(container: ContainerRequest, domain: str, ask: Ask) -> str | None:
    assert ask.family is not None
    core, memory = (resource_name(domain, ask.family, half) for half in Half)
    if ask.core > CORE_UNITS_PER_GPU and ask.core % CORE_UNITS_PER_GPU:
        return (
            f"container {container.name} asks for {core}: {ask.core}: allowed are 1 to "
            f"{CORE_UNITS_PER_GPU}, or 200, 300 and so on for whole GPUs"
        )
    if ask.family is Family.MPS and not ask.core:
        return (
            f"container {container.name} asks for {memory}: {ask.memory} without {core}: MPS has "
            "no left-over compute that it could run on"
        )
    return None
