"""Random lives in which the sharing of the GPUs is edited again and again, too.

Beside what holds in every life (`histories`): a container's units stay healthy whatever is edited,
its files say the same bytes for as long as it lives, all slices of one GPU are of one family and
one unit, no GPU is given away twice, and when everybody has gone the last good config holds
everywhere, also next to a bad one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.chaos.invariants import sums
from deviceplugin.model.units import gpu_of
from deviceplugin.testing import AdmittedPod
from deviceplugin.testing.records import AdmittedContainer
from libvgpu import region
from libvgpu.limits import Family
from support.node.in_process import GIB, GPU_MEMORY_BYTES, MPS_GPU, SPARE_GPU, VGPU_GPU
from support.world.histories import Asked, History, Life, Node

FAMILIES = ("vgpu", "mps")
GPUS = (MPS_GPU, VGPU_GPU, SPARE_GPU)
MOST_PODS = 6


@dataclass(frozen=True)
class WantedSharing:
    """What the config says: the family of each GPU, empty where none, and the units in GiB."""

    families: tuple[str, str, str]
    units: Mapping[str, int]

    def text(self) -> str:
        rows = ""
        for family in FAMILIES:
            devices = [n for n, each in enumerate(self.families) if each == family]
            if devices:
                rows += (
                    f"  - {{family: {family}, devices: {devices}, "
                    f"memoryUnit: {self.units[family]}Gi}}\n"
                )
        return f"version: v1\nsharing:\n  fractional:\n{rows}" if rows else "version: v1\n"

    def offered(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for family in self.families:
            if not family:  # what no entry takes is given whole
                found["nvidia.com/gpu"] = found.get("nvidia.com/gpu", 0) + 1
                continue
            core, memory = (f"nvidia.com/{family}-{half}" for half in ("core", "memory"))
            found[core] = found.get(core, 0) + 100
            found[memory] = found.get(memory, 0) + 16 // self.units[family]
        return found


class SharingHistory(History):
    """A life with edits; both families ask for pairs."""

    def __init__(self, node: Node, seed: int, life: Life) -> None:
        super().__init__(node, seed, life)
        self.wanted = WantedSharing(("vgpu", "vgpu", "vgpu"), {"vgpu": 1, "mps": 1})
        self.said: dict[Path, tuple[str, Family, int]] = {}  # what the files of a slice said first
        self.edits = 0
        self.drained: set[str] = set()

    def step(self, kind: str) -> None:
        if kind == "edit":
            self.edit()
        elif kind == "restart agent":
            self.node.stop_agent()
            self.node.start_agent()
            self.wait_held_healthy()
        elif kind == "restart kubelet":
            self.node.kubelet.stop()
            self.node.kubelet.start()
            self.wait_held_healthy()
        elif kind != "pair":
            super().step(kind)
        elif len(self.pods) < MOST_PODS:
            self.admit([], [self.of_a_family(self.pair(40, 6))])

    def of_a_family(self, asked: Asked) -> Asked:
        family = self.chance.choice(FAMILIES)
        return {name.replace("vgpu", family): count for name, count in asked.items()}

    def edit(self) -> None:
        families = tuple(self.chance.choice(("vgpu", "mps", "vgpu", "mps", "")) for _ in GPUS)
        assert len(families) == 3
        self.wanted = WantedSharing(
            families, {each: self.chance.choice((1, 2)) for each in FAMILIES}
        )
        self.write(self.wanted.text())
        self.edits += 1
        if self.chance.random() < 0.7:  # else the next step meets the agent in the midst of it
            self.node.pass_time(2.0)
            if self.chance.random() < 0.4:
                self.write("version: v2\n")  # is rejected, now and after a restart

    def write(self, text: str) -> None:
        new = self.node.config.with_name("new.yaml")
        new.write_text(text)
        new.rename(self.node.config)  # whole, as a ConfigMap volume does it

    def check_refusal(
        self, said: str, init: list[Asked], asked: list[Asked], free: dict[str, tuple[int, int]]
    ) -> None:
        assert "node agent failed" not in said, said

    def note_default(self, pod: AdmittedPod, container: AdmittedContainer) -> None:
        """Nobody asks for core alone."""

    def check_limits(self, asked: Mapping[str, int], directory: Path) -> None:
        limits = region.read_limits(directory).limits
        (device,) = limits.devices
        (family,) = {name.partition("/")[2].partition("-")[0] for name in asked}
        assert limits.family is Family[family.upper()]
        assert device.core_percent == asked[f"nvidia.com/{family}-core"]
        units = asked[f"nvidia.com/{family}-memory"]
        assert device.memory_limit_bytes in (units * GIB, 2 * units * GIB), f"{asked}: {device}"
        unit_bytes = device.memory_limit_bytes // units
        now = (device.uuid, limits.family, unit_bytes)
        assert self.said.setdefault(directory, now) == now, f"{self.said[directory]} became {now}"

    def check(self) -> None:
        super().check()
        self.check_held()
        self.check_files()

    def check_held(self) -> None:
        sick = self.sick(self.pods[:-1])
        assert not sick, f"held units are not healthy: {sorted(sick)[:3]}"
        # A GPU may begin to drain between the halves of a pair: the second was withdrawn before.
        self.node.wait_until(
            lambda: not self.sick(self.pods[-1:]), "held units are not healthy: the latest pod's"
        )
        for pod in self.pods:
            for container in pod.containers:
                gpus = {gpu_of(u) for units in container.devices.values() for u in units}
                assert len(gpus) == 1, f"{pod.manifest.name} is split: {gpus}"

    def sick(self, pods: Sequence[AdmittedPod]) -> set[str]:
        """Returns the units that pods have and the kubelet does not see healthy."""
        return {
            unit
            for pod in pods
            for container in pod.containers
            for resource, units in container.devices.items()
            for unit in set(units).difference(self.node.kubelet.healthy_units(resource))
        }

    def check_files(self) -> None:
        """Holds all files of slices against each other, GPU by GPU."""
        shared: dict[str, tuple[Family, int]] = {}
        directories = []
        for pod in self.pods:
            for container in pod.containers:
                answer = next(iter(container.answers.values()))
                host = next(
                    m.host_path for m in answer.mounts if m.container_path == "/run/vgpu/limits"
                )
                directories.append(Path(host).parent)
                self.check_limits(container.manifest.limits, directories[-1])
                uuid, family, unit_bytes = self.said[directories[-1]]
                before = shared.setdefault(uuid, (family, unit_bytes))
                assert before == (family, unit_bytes), f"{uuid} has {before} and {family} slices"
        limits = [region.read_limits(directory).limits for directory in directories]
        for breach in sums(limits, {gpu.uuid: GPU_MEMORY_BYTES for gpu in GPUS}):
            raise AssertionError(breach)
        for number, gpu in enumerate(GPUS):
            wants = self.wanted.families[number]
            if gpu.uuid in shared and shared[gpu.uuid][0].name.lower() != wants:
                self.drained.add(gpu.uuid)

    def wait_held_healthy(self) -> None:
        self.node.wait_until(
            lambda: self.node.is_registered() and not self.sick(self.pods),
            "what pods hold is healthy again",
        )

    def wait_all_freed(self) -> None:
        super().wait_all_freed()
        wanted, kubelet = self.wanted.offered(), self.node.kubelet
        self.node.wait_until(
            lambda: {r: n for r, n in kubelet.allocatable().items() if n} == wanted,
            f"{wanted} is offered",
        )
