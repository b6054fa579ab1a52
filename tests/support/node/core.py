"""The agent's core alone, over a directory, and a kubelet that admits pod after pod on it."""

from pathlib import Path
from typing import Any

from deviceplugin.config.loading import parse_config
from deviceplugin.core.parts import Sources
from deviceplugin.core.service import SliceService
from deviceplugin.model.agent_config import AgentConfig
from deviceplugin.model.allocations import Allocation, Owner
from deviceplugin.model.gpus import Gpu
from deviceplugin.model.units import Half, gpu_of, unit_name
from deviceplugin.policy.devices.layout import lay_out
from deviceplugin.policy.pairing.podresources_listing import Listed
from deviceplugin.store.checkpoint import Checkpoint
from deviceplugin.store.node_state import NodeState
from deviceplugin.store.slice_files import SliceStore
from libvgpu import region
from libvgpu.errors import VgpuError
from libvgpu.limits import DeviceLimit, Family

GIB = 1 << 30
VGPU = Family.VGPU


def some_gpus(count: int, memory_bytes: int = 16 * GIB) -> tuple[Gpu, ...]:
    """Returns GPUs with UUIDs GPU-0, GPU-1, …"""
    return tuple(Gpu(n, f"GPU-{n}", "test", memory_bytes) for n in range(count))


def fractional(share: str, rules: str = "") -> AgentConfig:
    """Returns a config with one way of sharing, such as ``family: vgpu``."""
    return parse_config(f"version: v1\nsharing: {{fractional: [{{{share}}}]}}\n{rules}")


class AgentCore:
    """The service, over directories that outlive it.

    Attributes:
        listed: what podresources shows.
    """

    def __init__(self, folder: Path, config: AgentConfig, gpus: tuple[Gpu, ...], **sources: Any):
        """Starts it.

        Args:
            sources: what `Sources` has besides podresources.
        """
        self.folder, self.gpus, self._sources = folder, gpus, sources
        self.listed: list[Listed] = []
        (folder / "state").mkdir()
        self.start(config)

    def start(self, config: AgentConfig, **more: Any) -> None:
        """Starts a service over what is there.

        Args:
            more: what the service takes besides.
        """
        store = SliceStore(self.folder / "run", self.folder / "state")
        store.prepare()
        state = NodeState(Checkpoint(self.folder / "state"), lay_out(config, self.gpus), self.gpus)
        sources = Sources(lambda: self.show(), **self._sources)
        self.service = SliceService(state, store, config.rules, sources, **more)

    def show(self) -> list[Listed]:
        """Answers as podresources."""
        return self.listed

    def follow(self, config: AgentConfig) -> None:
        """The config is another one."""
        self.service.follow_config(config, lay_out(config, self.gpus))

    def give(self, family: Family, core: int, memory: int) -> dict[Half, list[str]]:
        """Gives a container the first units of the first GPU."""
        units = {
            half: [unit_name(self.gpus[0].uuid, half, n) for n in range(count)]
            for half, count in ((Half.CORE, core), (Half.MEMORY, memory))
        }
        for half, names in units.items():
            self.service.admission.allocate(family, half, names)
        return units

    def allocations(self) -> list[Allocation]:
        """Returns all of them."""
        return [allocation for allocation, _ in self.service.allocations()]

    @property
    def allocation_id(self) -> str:
        """Returns the id of the only container's allocation."""
        (allocation,) = self.allocations()
        return allocation.allocation_id

    @property
    def device(self) -> DeviceLimit:
        """The limits of the only container, which are the same in its file."""
        directory = self.folder / "run" / "allocations" / self.allocation_id
        (device,) = region.read_limits(directory).limits.devices
        ((_, limits),) = self.service.allocations()
        assert limits.devices == (device,)
        return device


class Kubelet(AgentCore):
    """A kubelet that asks for one resource after the other, as it admits pods.

    Attributes:
        now, wall: what the clocks say.
        held: units by pod and container, of active pods; plain init containers show nothing.
        taken: units that are not offered any more.
        answers: whether podresources does.
    """

    def __init__(self, folder: Path, config: AgentConfig, gpus: tuple[Gpu, ...], **sources: Any):
        self.now, self.wall = 1000.0, 1.7e9
        self.held: dict[tuple[str, str], frozenset[str]] = {}
        self.taken: set[str] = set()
        self.answers = True
        clocks = {"clock": lambda: self.now, "wall_clock": lambda: self.wall}
        super().__init__(folder, config, gpus, **clocks, **sources)

    def show(self) -> list[Listed]:
        if not self.answers:
            raise VgpuError("down")
        return [Listed(Owner("team", *names), units) for names, units in self.held.items()]

    def begin(self, pod: str, *containers: str) -> None:
        """Begins to admit a pod."""
        for each in containers or ("c0",):
            self.held.setdefault((pod, each), frozenset())

    def ask(self, pod: str, half: Half, count: int, of: str = "c0", shows: bool = True) -> set[str]:
        """One resource of one container; returns the GPUs it got."""
        self.now += 0.005
        self.begin(pod, of if shows else "idle")
        _, units = self.service.units(VGPU, half)
        free = [u.name for u in units if u.healthy and u.name not in self.taken]
        chosen = self.service.admission.prefer(VGPU, half, free, [], count)
        self.taken.update(chosen)
        self.service.admission.allocate(VGPU, half, chosen)
        if shows:
            self.held[pod, of] |= frozenset(chosen)
        return {gpu_of(unit) for unit in chosen}

    def shapes(self) -> list[tuple[int, int]]:
        """Returns how many units of core and memory each allocation has."""
        return [(len(each.core), len(each.memory)) for each in self.allocations()]
