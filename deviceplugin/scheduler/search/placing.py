"""The GPUs of one node while the containers of a pod are put on them, one by one: pure.

`Rooms.put` follows the kubelet and the agent, with what init containers pass on (`init_units`): a
later one must be where all that it gets of them certainly is. What chance decides does not fit.
"""

from deviceplugin.model.pod_requests import ContainerKind
from deviceplugin.model.units import Half
from deviceplugin.policy.pairing.implicit_units import default_memory
from libvgpu.limits import Family

from .demand import Ask
from .init_units import NO_UNITS, FromInit, has_of_each, leave, reused, use_up
from .node_view import GpuRoom, NodeView

#: As many containers as no GPU carries, where MPS sets no bound.
ANY_NUMBER = 1 << 20


class Rooms:
    """What is free of each GPU and resource; places count the GPUs of the node.

    Attributes:
        core: free units of each GPU.
        memory: the same.
        containers: how many more each serves.
        taken: core, memory and containers of this pod on each GPU.
        chosen: the GPUs of each container so far.
        devices: free ones of each resource.
        devices_taken: by this pod.
    """

    __slots__ = (
        "_devices_from_init",
        "_from_init",
        "_gpus",
        "chosen",
        "containers",
        "core",
        "devices",
        "devices_taken",
        "memory",
        "taken",
    )

    def __init__(self, view: NodeView) -> None:
        """Nothing of the pod is there yet."""
        gpus = self._gpus = view.gpus
        self.core = [gpu.core for gpu in gpus]
        self.memory = [gpu.memory for gpu in gpus]
        self.containers = [
            ANY_NUMBER if gpu.containers_left is None else gpu.containers_left for gpu in gpus
        ]
        self.taken: dict[int, tuple[int, int, int]] = {}
        self.chosen: tuple[tuple[int, ...], ...] = ()
        self.devices = {name: room.free for name, room in view.devices.items()}
        self.devices_taken: dict[str, int] = {}
        self._from_init: dict[Family, FromInit] = {}
        self._devices_from_init: dict[str, int] = {}

    def copy(self) -> "Rooms":
        """Returns another one of the same content."""
        other = object.__new__(Rooms)
        other._gpus, other.chosen = self._gpus, self.chosen
        other.core, other.memory = self.core.copy(), self.memory.copy()
        other.containers = self.containers.copy()
        other.taken = self.taken.copy()
        other.devices, other.devices_taken = self.devices.copy(), self.devices_taken.copy()
        other._from_init = {family: each.copy() for family, each in self._from_init.items()}
        other._devices_from_init = self._devices_from_init.copy()
        return other

    def state_of(self, place: int) -> tuple[object, ...]:
        """Returns all that matters of one GPU: two of the same state are as good as each other."""
        gpu = self._gpus[place]
        passed_on = self._from_init and tuple(
            (
                family,
                tuple((half, units.get(place)) for half, units in each.units.items()),
                each.defaults.get(place),
                tuple(held for at, held in each.lone if place in at),
            )
            for family, each in self._from_init.items()
        )
        return (
            self.core[place],
            self.memory[place],
            self.containers[place],
            gpu.memory_units,
            gpu.memory_unit_bytes,
            gpu.family,
            gpu.is_empty,
            gpu.placement,
            place in self.taken,
            passed_on or None,
        )

    def state(self) -> tuple[object, ...]:
        """Returns all that matters for the containers that are still to be put."""
        # Their order matters no more; hashes are the quickest one, and need not be told apart.
        gpus = sorted((self.state_of(place) for place in range(len(self._gpus))), key=hash)
        return (*gpus, *sorted(self.devices.items()), *sorted(self._devices_from_init.items()))

    def must_have(self, ask: Ask) -> set[int]:
        """Returns the GPUs on which a container must be, since it gets units of init ones there."""
        found: set[int] = set()
        each = self._from_init.get(ask.family) if ask.family is not None else None
        if each is not None:
            for half, amount in ((Half.CORE, ask.core), (Half.MEMORY, ask.memory)):
                if amount:
                    found.update(each.units.get(half, ()))
        return found

    def is_untouched(self, place: int) -> bool:
        """Returns whether nobody has anything of a GPU, this pod included."""
        return self._gpus[place].is_empty and place not in self.taken

    def with_free(self) -> list[GpuRoom]:
        """Returns the GPUs with what is free of them now."""
        if not self.taken:
            return list(self._gpus)
        return [
            gpu if place not in self.taken else GpuRoom(
                gpu.index, gpu.uuid, gpu.product, gpu.family, self.core[place], self.memory[place],
                gpu.memory_units, gpu.memory_unit_bytes, gpu.containers_left,
                self.is_untouched(place), gpu.lone_halves, gpu.placement, gpu.closeness,
                gpu.problem,
            )
            for place, gpu in enumerate(self._gpus)
        ]  # fmt: skip

    def put_devices(self, ask: Ask) -> str | None:
        """Puts a container that asks for whole devices; returns the resource that lacks, if one."""
        for name, asked in ask.devices:
            reused = min(asked, self._devices_from_init.get(name, 0))
            if asked - reused > self.devices.get(name, 0):
                return name
            self.devices[name] -= asked - reused
            self.devices_taken[name] = self.devices_taken.get(name, 0) + asked - reused
            change = asked - reused if ask.kind is ContainerKind.INIT else -reused
            self._devices_from_init[name] = self._devices_from_init.get(name, 0) + change
        self.chosen = (*self.chosen, ())
        return None

    # Rules in their order.
    def put(self, ask: Ask, places: tuple[int, ...]) -> bool:  # noqa: C901, PLR0912
        """Puts a container on one GPU, or on several whole ones; returns whether it fits.

        What it returns false for is half done: it is to be thrown away.
        """
        assert ask.family is not None
        passed_on = self._from_init.get(ask.family)
        is_init = ask.kind is ContainerKind.INIT
        if passed_on is None:
            passed_on = FromInit()
            if is_init:
                self._from_init[ask.family] = passed_on
        old_core, old_memory = (
            reused(passed_on.units.get(half, NO_UNITS), amount, places)
            for half, amount in ((Half.CORE, ask.core), (Half.MEMORY, ask.memory))
        )
        if old_core is None or old_memory is None:
            return False
        if len(places) > 1 and ask.core and ask.memory and set(old_core) != set(old_memory):
            return False  # if the half is asked for first of which it gets none, it goes elsewhere
        asked_core = ask.core // len(places)
        had = sum(old_core.values())
        passing = sum(passed_on.units.get(Half.CORE, NO_UNITS).values())
        for place in places:
            gpu = self._gpus[place]
            core = asked_core - old_core.get(place, 0)
            memory = new = 0
            if ask.memory:
                memory = ask.memory if len(places) == 1 else gpu.memory_units
                memory = new = memory - old_memory.get(place, 0)
            elif ask.core:
                new = default_memory(gpu.memory_units, asked_core)
                left = passed_on.defaults.get(place, 0)
                if left and has_of_each(passed_on, place, had, passing):
                    memory = max(0, new - left)
                else:
                    memory = new
                passed_on.defaults[place] = max(left, new) if is_init else max(0, left - new)
            if self.core[place] < core or self.memory[place] < memory or not self.containers[place]:
                return False
            self.core[place] -= core
            self.memory[place] -= memory
            self.containers[place] -= 1
            before = self.taken.get(place, (0, 0, 0))
            self.taken[place] = (before[0] + core, before[1] + memory, before[2] + 1)
            if is_init:
                leave(passed_on, Half.CORE, place, core)
                leave(passed_on, Half.MEMORY, place, new if ask.memory else 0)
        if is_init:
            if ask.core and not ask.memory:
                passed_on.lone.append((frozenset(places), ask.core))
        else:
            use_up(passed_on, old_core, old_memory)
        self.chosen = (*self.chosen, places)
        return True


def is_usable(gpu: GpuRoom, ask: Ask) -> bool:
    """Returns whether anything of a GPU is given for what a container asks, its amounts apart."""
    return gpu.family is ask.family and not gpu.problem and (gpu.lone_halves or not ask.is_lone)
