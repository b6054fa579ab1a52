"""What the simulated GPU models are like.

Memory, SM counts, clocks and bandwidths are those of the data sheets; ``memory_bytes`` is what the
driver reports of it. ``context_bytes`` is a typical size, not a measured one.
"""

from dataclasses import dataclass

from ..errors import UsageError

MIB = 1 << 20
NVIDIA_VENDOR_ID = 0x10DE


@dataclass(frozen=True, slots=True)
class Profile:
    """One model of GPU.

    Attributes:
        name: as users write it, for example ``a100-80g``.
        product: as NVML and CUDA name it.
        memory_bytes: device memory in all.
        context_bytes: what each context on it costs.
        sm_count: streaming multiprocessors.
        compute_capability: major and minor.
        cores_per_sm: FP32 cores.
        threads_per_sm: resident threads.
        blocks_per_sm: resident blocks.
        shared_bytes_per_sm: shared memory.
        shared_bytes_per_block: the most that one block can opt in to.
        l2_bytes: second-level cache.
        clock_khz: highest SM clock.
        memory_clock_khz: highest memory clock.
        memory_bus_bits: width of the memory bus.
        memory_bytes_per_second: bandwidth of device memory.
        pcie_bytes_per_second: bandwidth to the host, as copies reach it.
        power_limit_milliwatts: board power.
        pci_device_id: NVIDIA's number of the model.
    """

    name: str
    product: str
    memory_bytes: int
    context_bytes: int
    sm_count: int
    compute_capability: tuple[int, int]
    cores_per_sm: int
    threads_per_sm: int
    blocks_per_sm: int
    shared_bytes_per_sm: int
    shared_bytes_per_block: int
    l2_bytes: int
    clock_khz: int
    memory_clock_khz: int
    memory_bus_bits: int
    memory_bytes_per_second: int
    pcie_bytes_per_second: int
    power_limit_milliwatts: int
    pci_device_id: int


_ALL = (
    Profile(
        name="t4", product="Tesla T4", memory_bytes=15360 * MIB, context_bytes=104 * MIB,
        sm_count=40, compute_capability=(7, 5), cores_per_sm=64, threads_per_sm=1024,
        blocks_per_sm=16, shared_bytes_per_sm=65536, shared_bytes_per_block=65536,
        l2_bytes=4 * MIB, clock_khz=1_590_000, memory_clock_khz=5_001_000, memory_bus_bits=256,
        memory_bytes_per_second=320_000_000_000, pcie_bytes_per_second=12_000_000_000,
        power_limit_milliwatts=70_000, pci_device_id=0x1EB8,
    ),
    Profile(
        name="a100-40g", product="NVIDIA A100-SXM4-40GB", memory_bytes=40960 * MIB,
        context_bytes=424 * MIB, sm_count=108, compute_capability=(8, 0), cores_per_sm=64,
        threads_per_sm=2048, blocks_per_sm=32, shared_bytes_per_sm=167936,
        shared_bytes_per_block=166912, l2_bytes=40 * MIB, clock_khz=1_410_000,
        memory_clock_khz=1_215_000, memory_bus_bits=5120,
        memory_bytes_per_second=1_555_000_000_000, pcie_bytes_per_second=25_000_000_000,
        power_limit_milliwatts=400_000, pci_device_id=0x20B0,
    ),
    Profile(
        name="a100-80g", product="NVIDIA A100-SXM4-80GB", memory_bytes=81920 * MIB,
        context_bytes=424 * MIB, sm_count=108, compute_capability=(8, 0), cores_per_sm=64,
        threads_per_sm=2048, blocks_per_sm=32, shared_bytes_per_sm=167936,
        shared_bytes_per_block=166912, l2_bytes=40 * MIB, clock_khz=1_410_000,
        memory_clock_khz=1_593_000, memory_bus_bits=5120,
        memory_bytes_per_second=2_039_000_000_000, pcie_bytes_per_second=25_000_000_000,
        power_limit_milliwatts=400_000, pci_device_id=0x20B2,
    ),
    Profile(
        name="h100-80g", product="NVIDIA H100 80GB HBM3", memory_bytes=81559 * MIB,
        context_bytes=528 * MIB, sm_count=132, compute_capability=(9, 0), cores_per_sm=128,
        threads_per_sm=2048, blocks_per_sm=32, shared_bytes_per_sm=233472,
        shared_bytes_per_block=232448, l2_bytes=50 * MIB, clock_khz=1_980_000,
        memory_clock_khz=2_619_000, memory_bus_bits=5120,
        memory_bytes_per_second=3_350_000_000_000, pcie_bytes_per_second=55_000_000_000,
        power_limit_milliwatts=700_000, pci_device_id=0x2330,
    ),
    Profile(
        name="h200-141g", product="NVIDIA H200", memory_bytes=143771 * MIB,
        context_bytes=528 * MIB, sm_count=132, compute_capability=(9, 0), cores_per_sm=128,
        threads_per_sm=2048, blocks_per_sm=32, shared_bytes_per_sm=233472,
        shared_bytes_per_block=232448, l2_bytes=50 * MIB, clock_khz=1_980_000,
        memory_clock_khz=3_201_000, memory_bus_bits=6144,
        memory_bytes_per_second=4_800_000_000_000, pcie_bytes_per_second=55_000_000_000,
        power_limit_milliwatts=700_000, pci_device_id=0x2335,
    ),
    Profile(
        name="l40s", product="NVIDIA L40S", memory_bytes=46068 * MIB, context_bytes=352 * MIB,
        sm_count=142, compute_capability=(8, 9), cores_per_sm=128, threads_per_sm=1536,
        blocks_per_sm=24, shared_bytes_per_sm=102400, shared_bytes_per_block=101376,
        l2_bytes=96 * MIB, clock_khz=2_520_000, memory_clock_khz=9_001_000, memory_bus_bits=384,
        memory_bytes_per_second=864_000_000_000, pcie_bytes_per_second=25_000_000_000,
        power_limit_milliwatts=350_000, pci_device_id=0x26B9,
    ),
)  # fmt: skip

#: By name; `ALIASES` are further names of the same.
PROFILES: dict[str, Profile] = {profile.name: profile for profile in _ALL}
ALIASES: dict[str, str] = {"h100": "h100-80g"}


def find_profile(name: str) -> Profile:
    """Returns the profile of that name or alias.

    Raises:
        UsageError: there is none; names those there are.
    """
    profile = PROFILES.get(ALIASES.get(name, name))
    if profile is None:
        known = ", ".join([*PROFILES, *ALIASES])
        raise UsageError(f"unknown GPU profile {name!r}: there are {known}")
    return profile
