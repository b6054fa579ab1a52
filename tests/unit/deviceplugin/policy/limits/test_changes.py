"""What a change of limits means for processes that run."""

from dataclasses import replace

from deviceplugin.policy.limits.asked import under_mps
from deviceplugin.policy.limits.changes import change_text, pending, pending_values
from libvgpu.limits import ComputeMode, ContainerLimits, DeviceLimit, Family

GIB = 1 << 30


def limits(core: int, memory_bytes: int, family: Family = Family.MPS) -> ContainerLimits:
    device = DeviceLimit("GPU-0", memory_bytes, core_percent=core, weight=core)
    device = under_mps(device) if family is Family.MPS else device
    return ContainerLimits("id", family, (device,))


def test_under_mps_less_memory_holds_at_once_and_the_rest_is_pending() -> None:
    full, lowered = limits(40, 8 * GIB), limits(10, GIB)

    assert pending(full, lowered) == ["core 40 to 10"]
    assert pending(lowered, full) == ["core 10 to 40", f"memory {GIB} to {8 * GIB} bytes"]
    assert pending(limits(40, GIB, Family.VGPU), limits(1, GIB, Family.VGPU)) == []


def test_pending_names_the_values_that_wait() -> None:
    (full,), (less,) = limits(40, 8 * GIB).devices, limits(10, GIB).devices

    assert pending_values(full, less, Family.MPS) == ("core",)
    assert pending_values(less, full, Family.MPS) == ("core", "memory")
    assert pending_values(full, full, Family.MPS) == ()
    assert pending_values(full, less, Family.VGPU) == ()


def test_a_change_is_told_with_old_new_and_cause() -> None:
    (old,), (new,) = (limits(n, n * GIB, Family.VGPU).devices for n in (40, 20))

    text = change_text(old, new, "limits[0] on line 3", [])
    held = change_text(old, replace(new, compute_mode=ComputeMode.ELASTIC), "request", ["core"])

    assert text == "GPU memory 40 GiB to 20 GiB, compute 40% to 20%, by limits[0] on line 3"
    assert held == (
        "GPU memory 40 GiB to 20 GiB, compute 40% to 20% held strict to elastic, by request; "
        "when its processes start again: core"
    )
