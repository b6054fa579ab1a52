"""What a change of limits means for processes that run."""

from dataclasses import replace

from deviceplugin.policy.limits.asked import under_mps
from deviceplugin.policy.limits.changes import change_text, pending
from libvgpu.limits import ComputeMode, DeviceLimit, Family

GIB = 1 << 30


def limits(core: int, memory_bytes: int, family: Family = Family.MPS) -> DeviceLimit:
    device = DeviceLimit("GPU-0", memory_bytes, core_percent=core, weight=core)
    return under_mps(device) if family is Family.MPS else device


def test_under_mps_less_memory_holds_at_once_and_the_rest_is_pending() -> None:
    full, less = limits(40, 8 * GIB), limits(10, GIB)

    assert pending(full, less, Family.MPS) == {"core": "core 40 to 10"}
    assert pending(less, full, Family.MPS) == {
        "core": "core 10 to 40",
        "memory": f"memory {GIB} to {8 * GIB} bytes",
    }
    assert pending(full, full, Family.MPS) == {}
    for old, new in ((full, less), (less, full)):
        assert pending(old, new, Family.VGPU) == {}


def test_a_change_is_told_with_old_new_and_cause() -> None:
    old, new = (limits(n, n * GIB, Family.VGPU) for n in (40, 20))

    text = change_text(old, new, "limits[0] on line 3", [])
    held = change_text(old, replace(new, compute_mode=ComputeMode.ELASTIC), "request", ["core"])

    assert text == "GPU memory 40 GiB to 20 GiB, compute 40% to 20%, by limits[0] on line 3"
    assert held == (
        "GPU memory 40 GiB to 20 GiB, compute 40% to 20% held strict to elastic, by request; "
        "when its processes start again: core"
    )
