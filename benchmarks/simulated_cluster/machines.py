"""Kinds of nodes: which GPUs they have, and how their agents share them."""

from collections.abc import Sequence
from dataclasses import dataclass

from deviceplugin.model.gpus import Gpu, MigPart

GIB = 1 << 30
DOMAIN = "nvidia.com"
CORE, MEMORY = f"{DOMAIN}/vgpu-core", f"{DOMAIN}/vgpu-memory"
MPS_CORE, MPS_MEMORY = f"{DOMAIN}/mps-core", f"{DOMAIN}/mps-memory"
GPU, SHARED_GPU = f"{DOMAIN}/gpu", f"{DOMAIN}/gpu.shared"
MIG_SMALL, MIG_LARGE = f"{DOMAIN}/mig-1g.10gb", f"{DOMAIN}/mig-3g.40gb"


@dataclass(frozen=True, slots=True)
class Model:
    """One product; the memory is what NVML says of it, rounded to whole MiB."""

    product: str
    memory_bytes: int


H100 = Model("NVIDIA H100 80GB HBM3", 80 * GIB)
A100 = Model("NVIDIA A100-SXM4-40GB", 40 * GIB)
L4 = Model("NVIDIA L4", 23 * GIB)
T4 = Model("Tesla T4", 15 * GIB)


@dataclass(frozen=True, slots=True)
class Machine:
    """A kind of node.

    Attributes:
        config: the agent's config file.
        mig: profiles and memory of the MIG devices of each GPU that is cut, by its index.
    """

    name: str
    model: Model
    gpus: int
    config: str
    mig: tuple[tuple[int, tuple[tuple[str, int], ...]], ...] = ()

    def make_gpus(self, node: str) -> tuple[Gpu, ...]:
        """Returns the GPUs of a node of this kind, with UUIDs of its own."""
        cut = dict(self.mig)
        return tuple(self._gpu(node, index, cut.get(index, ())) for index in range(self.gpus))

    def _gpu(self, node: str, index: int, parts: Sequence[tuple[str, int]]) -> Gpu:
        uuid = f"GPU-{node}-{index}"
        others = {
            f"GPU-{node}-{other}": 3 if other // 4 == index // 4 else 1
            for other in range(self.gpus)
            if other != index
        }
        return Gpu(
            index,
            uuid,
            self.model.product,
            self.model.memory_bytes,
            compute_major=8,
            closeness=others,
            is_mig_capable=bool(parts),
            is_mig_enabled=bool(parts),
            mig_devices=tuple(
                Gpu(
                    index,
                    f"MIG-{node}-{index}-{number}",
                    self.model.product,
                    memory,
                    mig=MigPart(uuid, number, profile, number + 1, 0),
                )
                for number, (profile, memory) in enumerate(parts)
            ),
        )


_CUT = (("1g.10gb", 10 * GIB), ("1g.10gb", 10 * GIB), ("3g.40gb", 40 * GIB))

#: Eight large GPUs, all shared in units.
LARGE = Machine(
    "large", H100, 8, "version: v1\nsharing: {fractional: [{family: vgpu, memoryUnit: 1Gi}]}\n"
)
#: Some shared, some given whole.
HALF_WHOLE = Machine(
    "half-whole",
    A100,
    4,
    "version: v1\nsharing: {fractional: [{family: vgpu, devices: [0, 1], memoryUnit: 512Mi}]}\n",
)
#: Both families, and one that spreads.
BOTH = Machine(
    "both",
    L4,
    4,
    "version: v1\nsharing:\n  fractional:\n"
    "    - {family: mps, devices: [0, 1], memoryUnit: 1Gi}\n"
    "    - {family: vgpu, devices: [2, 3], memoryUnit: 1Gi, placement: spread}\n",
)
#: Replicas that take turns.
SLICED = Machine(
    "sliced",
    T4,
    2,
    "version: v1\nsharing:\n  timeSlicing:\n    renameByDefault: true\n"
    "    resources: [{name: nvidia.com/gpu, replicas: 4}]\n",
)
#: One GPU is cut and its parts are given whole; the other is shared in units.
CUT = Machine(
    "cut",
    H100,
    2,
    "version: v1\nflags: {migStrategy: mixed}\n"
    "sharing: {fractional: [{family: vgpu, devices: [1], memoryUnit: 1Gi}]}\n",
    mig=((0, _CUT),),
)
#: One GPU is cut and one of its parts is shared in units.
CUT_SHARED = Machine(
    "cut-shared",
    H100,
    2,
    "version: v1\nflags: {migStrategy: mixed}\n"
    'sharing: {fractional: [{family: vgpu, devices: ["0:2", 1], memoryUnit: 2Gi}]}\n',
    mig=((0, _CUT),),
)
MIXED = (LARGE, HALF_WHOLE, BOTH, SLICED, CUT, CUT_SHARED)
