"""What a pod asks of a node, without whose it is: the question that nodes are judged by. Values.

Pods of one controller ask the same question, so an answer to one is an answer to all (`verdicts`).
What no node can ever give is refused here, in the order of the admission policy's rules.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from deviceplugin.model.pod_requests import ContainerKind, ContainerRequest, PodRequest
from deviceplugin.model.units import CORE_UNITS_PER_GPU, Half, resource_name
from libvgpu.limits import Family

from .plans import MOST_REASON_BYTES, Refusal
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
            return Refusal(problem[:MOST_REASON_BYTES], resolvable=False)
    for before, after in pairwise(zip(request.containers, asks, strict=True)):
        if _are_confusable(before[1], after[1]):
            return Refusal(
                f"init container {before[0].name} asks for one half alone and {after[0].name} for "
                "as much of it and the other half, which agents cannot tell apart; give both the "
                "same"[:MOST_REASON_BYTES],
                resolvable=False,
            )
    return Demand(domain, tuple(asks), wishes)


def _are_confusable(before: Ask, after: Ask) -> bool:
    """Returns whether an agent may take the second one's other half for the first one's: the
    kubelet gives what the first one has without asking, and says of the rest not for whom it is.
    """
    return (
        before.kind is ContainerKind.INIT
        and before.is_lone
        and not after.is_lone
        and before.family is after.family is not None
        and (before.core == after.core or before.memory == after.memory)
    )


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
