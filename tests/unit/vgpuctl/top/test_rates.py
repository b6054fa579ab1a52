"""What `vgpuctl top` makes of two looks at the slices."""

from libvgpu import allocation_dirs, region
from libvgpu.limits import ComputeMode, ContainerLimits, DeviceLimit, Family
from libvgpu.sharing_mode import Mode
from libvgpu.slices import Slice
from libvgpu.usage import ContainerUsage, DeviceUsage, ProcessUsage
from vgpuctl.top.rates import KEPT, Rates

GIB = 1 << 30
SECOND = 1_000_000_000


def usage(gpu_s: float = 0.0, held_s: float = 0.0, used: int = GIB, **more: int) -> DeviceUsage:
    return DeviceUsage(
        device_index=0,
        used_bytes=used,
        kind_bytes={},
        peak_bytes=used,
        launches=10,
        gpu_time_ns=round(gpu_s * SECOND),
        held_ns=round(held_s * SECOND),
        windows=more.get("windows", 0),
        delay_counts=(),
        is_estimated=False,
        share_percent=17,
        refused_count=more.get("refused", 0),
        last_refusal=None,
    )


def a_slice(device: DeviceUsage, family: Family = Family.VGPU) -> Slice:
    limit = DeviceLimit("GPU-a", 4 * GIB, core_percent=30, compute_mode=ComputeMode.STRICT)
    limits = ContainerLimits("1f", family, (limit,))
    process = ProcessUsage(0, 7, 1, "python", True, False, (device,))
    return Slice(
        allocation_dirs.AllocationMeta(
            "1f", family.name.lower(), "kubelet", 0.0, namespace="team", pod="train", container="c"
        ),
        limits,
        ContainerUsage("1f", (device,), (process,)),
        "running",
        modes=(Mode.WINDOWS,),
    )


def test_between_two_looks_a_share_is_what_was_used_of_the_time() -> None:
    rates = Rates()
    (first,) = rates.look([a_slice(usage(gpu_s=5.0))], 10.0)
    assert first.share_percent == 17  # what the shim itself says, while there is nothing else
    (row,) = rates.look([a_slice(usage(gpu_s=5.6, held_s=0.5, windows=40, refused=3))], 12.0)
    assert row.share_percent == 30
    assert (row.held_percent, row.windows_a_second) == (25, 20)
    assert (row.refused, row.refused_lately) == (3, 3)
    assert row.share_history == (0.3,)
    assert row.memory_history == (0.25, 0.25)
    assert (row.who, row.processes, row.mode) == ("team/train/c", 1, "windows")


def test_counters_that_fell_are_no_negative_rates() -> None:
    rates = Rates()
    rates.look([a_slice(usage(gpu_s=5.0, held_s=3.0, windows=9, refused=9))], 10.0)
    (row,) = rates.look([a_slice(usage(gpu_s=1.0))], 11.0)
    assert (row.share_percent, row.held_percent, row.windows_a_second) == (0, 0, 0)
    assert row.refused_lately == 0


def test_a_share_is_never_more_than_all() -> None:
    rates = Rates()
    rates.look([a_slice(usage())], 10.0)
    (row,) = rates.look([a_slice(usage(gpu_s=1e6))], 11.0)
    assert row.share_percent == 100


def test_what_is_kept_for_lines_is_bounded_and_goes_with_its_slice() -> None:
    rates = Rates()
    for second in range(3 * KEPT):
        (row,) = rates.look([a_slice(usage(gpu_s=float(second)))], float(second))
    assert len(row.memory_history) == len(row.share_history) == KEPT
    assert rates.look([], 100.0) == []
    (row,) = rates.look([a_slice(usage())], 101.0)
    assert row.share_history == ()


def test_a_damaged_slice_is_a_row_that_says_so() -> None:
    damaged = Slice(a_slice(usage()).meta, None, None, "damaged", "usage is too short")
    (row,) = Rates().look([damaged], 1.0)
    assert (row.state, row.gpu_uuid) == ("damaged", "")


def test_a_process_that_ended_holds_nothing_more() -> None:
    found = a_slice(usage())
    assert found.usage is not None
    dead = region.ProcessUsage(0, 7, 1, "python", False, False, (usage(),))
    ended = Slice(
        found.meta,
        found.limits,
        ContainerUsage("1f", (usage(),), (dead,)),
        "idle",
        modes=found.modes,
    )
    (row,) = Rates().look([ended], 1.0)
    assert (row.memory_used_bytes, row.processes) == (0, 0)
