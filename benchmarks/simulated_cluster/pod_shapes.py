"""Pods as people make them, of every kind that the resources allow; the chance is the caller's."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .machines import (
    CORE,
    DOMAIN,
    GPU,
    MEMORY,
    MIG_LARGE,
    MIG_SMALL,
    MPS_CORE,
    MPS_MEMORY,
    SHARED_GPU,
)

Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Shape:
    """What the containers of a pod ask for, by resource.

    Attributes:
        init: its init containers in order, each with whether it is a sidecar.
    """

    containers: Sequence[Amounts]
    init: Sequence[tuple[Amounts, bool]] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0

    def requests(self) -> dict[str, int]:
        """Returns what kube-scheduler counts for it: the sum of what runs together, or what an
        init container has next to the sidecars before it, if that is more.
        """
        sidecars: dict[str, int] = {}
        most: dict[str, int] = {}
        for amounts, is_sidecar in self.init:
            now = _sum(sidecars, amounts)
            most = {name: max(now.get(name, 0), most.get(name, 0)) for name in {*now, *most}}
            if is_sidecar:
                sidecars = now
        together = sidecars
        for amounts in self.containers:
            together = _sum(together, amounts)
        return {name: max(together.get(name, 0), most.get(name, 0)) for name in {*together, *most}}

    def pod(self, name: str, namespace: str = "default") -> dict[str, Any]:
        """Returns it as an object for the API server."""
        return {
            "metadata": {
                "name": name,
                "namespace": namespace,
                **({"annotations": dict(self.annotations)} if self.annotations else {}),
            },
            "spec": {
                "priority": self.priority,
                "containers": [_container(f"c{i}", each) for i, each in enumerate(self.containers)],
                **(
                    {
                        "initContainers": [
                            _container(f"i{i}", amounts)
                            | ({"restartPolicy": "Always"} if is_sidecar else {})
                            for i, (amounts, is_sidecar) in enumerate(self.init)
                        ]
                    }
                    if self.init
                    else {}
                ),
            },
        }


def requests_of(pod: Mapping[str, Any]) -> dict[str, int]:
    """Returns what kube-scheduler counts for a pod of the API server."""

    def amounts(container: Mapping[str, Any]) -> Amounts:
        limits = container.get("resources", {}).get("limits", {})
        return {name: int(count) for name, count in limits.items() if "/" in name}

    spec = pod["spec"]
    return Shape(
        [amounts(each) for each in spec["containers"]],
        [
            (amounts(each), each.get("restartPolicy") == "Always")
            for each in spec.get("initContainers") or ()
        ],
    ).requests()


def _sum(some: Amounts, others: Amounts) -> dict[str, int]:
    return {name: some.get(name, 0) + others.get(name, 0) for name in {*some, *others}}


def _container(name: str, amounts: Amounts) -> dict[str, Any]:
    limits = {resource: str(count) for resource, count in amounts.items() if count}
    return {"name": name, "image": "none", "resources": {"limits": limits, "requests": limits}}


def _pair(chance: random.Random, most_core: int, most_memory: int) -> dict[str, int]:
    return {CORE: chance.randint(1, most_core), MEMORY: chance.randint(1, most_memory)}


def _with_init(chance: random.Random) -> Shape:
    first = _pair(chance, 60, 30)
    second = {CORE: chance.randint(1, first[CORE]), MEMORY: chance.randint(1, first[MEMORY])}
    return Shape([second], [(first, False)])


def _with_larger_container(chance: random.Random) -> Shape:
    first = _pair(chance, 30, 8)
    second = {CORE: first[CORE] + 10, MEMORY: first[MEMORY] + 2}
    return Shape([second], [(first, False)])


def _with_sidecar(chance: random.Random) -> Shape:
    return Shape([_pair(chance, 40, 8)], [(_pair(chance, 20, 4), True)])


def _several(chance: random.Random) -> Shape:
    return Shape([_pair(chance, 40, 8) for _ in range(chance.randint(2, 4))])


def _whole_in_units(chance: random.Random) -> Shape:
    return Shape([{CORE: 100 * chance.choice((1, 1, 2, 4))}])


#: name -> how often, of all kinds, and what makes one.
KINDS: Mapping[str, tuple[int, Callable[[random.Random], Shape]]] = {
    "small": (26, lambda chance: Shape([_pair(chance, 30, 8)])),
    "half": (12, lambda chance: Shape([{CORE: 50, MEMORY: chance.choice((8, 16, 20, 40))}])),
    "large": (6, lambda chance: Shape([_pair(chance, 100, 79)])),
    "whole in units": (5, _whole_in_units),
    "several containers": (7, _several),
    "init": (5, _with_init),
    "small init": (3, _with_larger_container),
    "sidecar": (4, _with_sidecar),
    "lone core": (5, lambda chance: Shape([{CORE: chance.randint(1, 90)}])),
    "lone memory": (4, lambda chance: Shape([{MEMORY: chance.randint(1, 20)}])),
    "mps": (
        8,
        lambda chance: Shape(
            [{MPS_CORE: chance.randint(1, 60), MPS_MEMORY: chance.randint(1, 12)}]
        ),
    ),
    "whole": (5, lambda chance: Shape([{GPU: chance.choice((1, 1, 2))}])),
    "time-slice": (6, lambda chance: Shape([{SHARED_GPU: 1}])),
    "mig": (4, lambda chance: Shape([{chance.choice((MIG_SMALL, MIG_LARGE)): 1}])),
}
#: What no node can ever give, or nobody should ask for.
NEVER = (
    Shape([{CORE: 10, MEMORY: 5000}]),
    Shape([{CORE: 150, MEMORY: 4}]),
    Shape([{CORE: 10, MEMORY: 4}], annotations={f"{DOMAIN}/vgpu.use-gpu-models": "none such"}),
)


def random_shape(
    chance: random.Random, kinds: Mapping[str, tuple[int, Callable[[random.Random], Shape]]] = KINDS
) -> Shape:
    """Returns a pod of a random kind."""
    weights = [weight for weight, _ in kinds.values()]
    (name,) = chance.choices(list(kinds), weights)
    return kinds[name][1](chance)
