"""The arithmetic of the compute cap, over simulated time."""

import pytest

from libvgpu._native import ffi, lib

MS = 1_000_000
SECOND = 1000 * MS


def run(percent: int, kernel_ns: int, seconds: float, *, estimate_ns: int | None = None) -> float:
    """Runs kernels back to back under a cap; returns the share of the time they had."""
    device = ffi.new("struct vgpu_usage_device *")
    guess = estimate_ns or kernel_ns
    start = now = 5 * SECOND
    busy = 0
    while now - start < seconds * SECOND:
        lib.virtual_time_enter(device, now)
        wait = lib.virtual_time_wait_ns(device, now, lib.VIRTUAL_TIME_SLACK_NS)
        if wait:
            now += wait
        lib.virtual_time_charge(device, now, guess, percent)
        now += kernel_ns
        busy += kernel_ns
        lib.virtual_time_charge(device, now, kernel_ns - guess, percent)  # what was measured
    return 100 * busy / (now - start)


@pytest.mark.parametrize("percent", [10, 30, 50, 90])
@pytest.mark.parametrize("kernel_ns", [20_000, 2 * MS, 200 * MS])
def test_the_long_run_share_is_the_cap_whatever_the_kernel_length(
    percent: int, kernel_ns: int
) -> None:
    assert run(percent, kernel_ns, max(5, 300 * kernel_ns / SECOND)) == pytest.approx(
        percent, abs=0.3
    )


@pytest.mark.parametrize("estimate_ns", [300, 20 * MS])
def test_a_wrong_estimate_becomes_debt_and_not_share(estimate_ns: int) -> None:
    assert run(50, 2 * MS, 20, estimate_ns=estimate_ns) == pytest.approx(50, abs=0.3)


def test_a_pause_earns_no_more_than_one_burst() -> None:
    device = ffi.new("struct vgpu_usage_device *")
    lib.virtual_time_enter(device, 5 * SECOND)
    lib.virtual_time_charge(device, 5 * SECOND, MS, 50)

    lib.virtual_time_enter(device, 60 * SECOND)  # after most of a minute without work

    assert 60 * SECOND - device.virtual_time_ns == lib.VIRTUAL_TIME_BURST_NS


def test_a_new_container_has_saved_nothing_up() -> None:
    device = ffi.new("struct vgpu_usage_device *")

    lib.virtual_time_enter(device, 5 * SECOND)

    assert device.virtual_time_ns == 5 * SECOND


def test_work_in_flight_keeps_its_credit() -> None:
    device = ffi.new("struct vgpu_usage_device *")
    lib.virtual_time_enter(device, 5 * SECOND)
    lib.virtual_time_charge(device, 5 * SECOND, 500 * MS, 100)
    lib.virtual_time_charge(device, 5 * SECOND + 400 * MS, -300 * MS, 100)  # it was shorter, by far
    behind = 5 * SECOND + 200 * MS

    lib.virtual_time_enter(device, behind - 1)  # before it ends: nothing is clipped

    assert device.virtual_time_ns == 5 * SECOND + 200 * MS


@pytest.mark.parametrize("written", [-(1 << 63), (1 << 63) - 1])
def test_garbage_of_a_tenant_makes_no_time_negative(written: int) -> None:
    device = ffi.new("struct vgpu_usage_device *")
    device.virtual_time_ns = written
    device.busy_until_ns = written % (1 << 64)

    lib.virtual_time_charge(device, SECOND, MS, 30)

    assert lib.virtual_time_wait_ns(device, SECOND, 0) >= 0
    assert lib.virtual_time_busy_ns(device, SECOND) >= 0
