"""The arbiter's policy over simulated time: who gets the GPU, when, and at whose expense."""

import pytest

from libvgpu._native import ffi, lib
from support.shim.contention import MS, NEVER, SECOND, START_NS, Contention, LaunchingTenant

FREE, WINDOWS = lib.VGPU_GRANT_FREE, lib.VGPU_GRANT_WINDOWS


@pytest.mark.parametrize("weights", [(30, 70), (10, 90), (50, 50), (20, 30, 50)])
@pytest.mark.parametrize("syncs", [False, True], ids=["queued", "synced"])
@pytest.mark.parametrize("kernel_ns", [MS // 2, 7 * MS, 20 * MS])
def test_the_gpu_is_split_by_weight(weights: tuple[int, ...], syncs: bool, kernel_ns: int) -> None:
    gpu = Contention(*[LaunchingTenant(weight, kernel_ns, syncs) for weight in weights])

    gpu.run(10 * SECOND)

    assert gpu.occupied() == pytest.approx(weights, abs=0.4)
    assert gpu.shares() == pytest.approx(weights, abs=0.4)
    assert sum(tenant.work_ns for tenant in gpu.tenants) >= 0.985 * 10 * SECOND


def test_kernels_much_longer_than_a_window_are_split_by_weight_too() -> None:
    gpu = Contention(
        LaunchingTenant(30, 200 * MS, syncs=True), LaunchingTenant(70, 200 * MS, syncs=True)
    )

    gpu.run(60 * SECOND)

    assert gpu.shares() == pytest.approx([30, 70], abs=0.6)


def test_short_and_long_kernels_get_equal_time() -> None:
    gpu = Contention(LaunchingTenant(50, MS // 20), LaunchingTenant(50, 20 * MS))

    gpu.run(10 * SECOND)

    assert gpu.shares() == pytest.approx([50, 50], abs=0.6)


def test_weights_change_while_tenants_run() -> None:
    gpu = Contention(LaunchingTenant(50), LaunchingTenant(50))
    gpu.run(SECOND)

    lib.policy_set_weight(gpu.policy, 0, 150)
    gpu.run(100 * MS)
    gpu.forget_work()
    gpu.run(5 * SECOND)

    assert gpu.shares() == pytest.approx([75, 25], abs=0.4)


def test_a_weight_of_nothing_counts_as_one() -> None:
    gpu = Contention(LaunchingTenant(0), LaunchingTenant(3))

    gpu.run(5 * SECOND)

    assert gpu.shares() == pytest.approx([25, 75], abs=0.5)


def test_what_a_capped_tenant_leaves_goes_to_the_other() -> None:
    gpu = Contention(LaunchingTenant(30, cap_percent=30), LaunchingTenant(30))

    gpu.run(10 * SECOND)

    assert gpu.shares() == pytest.approx([30, 70], abs=0.5)
    assert sum(tenant.work_ns for tenant in gpu.tenants) >= 0.985 * 10 * SECOND


@pytest.mark.parametrize("withdraws", [False, True])
def test_a_capped_tenant_saves_up_no_more_than_a_burst(withdraws: bool) -> None:
    """It used less than its weight for long; once uncapped, it gets its weight and not arrears."""
    capped, other = LaunchingTenant(50, cap_percent=20, withdraws=withdraws), LaunchingTenant(50)
    gpu = Contention(capped, other)
    gpu.run(10 * SECOND)

    capped.cap_percent, capped.cap_time_ns = 100, 0
    gpu.forget_work()
    gpu.run(SECOND)

    assert gpu.shares() == pytest.approx([50, 50], abs=6)


def test_one_tenant_alone_is_free() -> None:
    gpu = Contention(LaunchingTenant(30), LaunchingTenant(70, wants=()))

    gpu.run(SECOND)

    assert [gpu.grant(tenant).mode for tenant in gpu.tenants] == [FREE, FREE]
    assert gpu.tenants[0].work_ns >= 0.99 * SECOND
    assert gpu.steps <= 30  # 10 a second; it rings a few times at its start


def test_an_idle_gpu_sets_no_timer() -> None:
    gpu = Contention(
        LaunchingTenant(30, wants=((0, 50 * MS),)), LaunchingTenant(70, wants=((0, 60 * MS),))
    )

    gpu.run(SECOND)

    assert gpu.step_at_ns == NEVER
    assert [gpu.grant(tenant).mode for tenant in gpu.tenants] == [FREE, FREE]


@pytest.mark.parametrize("kernel_ns", [MS // 20, MS, 5 * MS])
def test_one_that_joins_is_served_within_50_ms(kernel_ns: int) -> None:
    joiner = LaunchingTenant(20, kernel_ns, wants=((SECOND, 2 * SECOND),))
    gpu = Contention(LaunchingTenant(30, kernel_ns), LaunchingTenant(50, kernel_ns), joiner)

    gpu.run(SECOND + 50 * MS)
    assert joiner.launch_times, "nothing was launched within 50 ms"
    gpu.forget_work()
    gpu.run(200 * MS)

    assert gpu.shares() == pytest.approx([30, 50, 20], abs=5)


def test_one_that_was_away_is_owed_nothing() -> None:
    gpu = Contention(
        LaunchingTenant(50), LaunchingTenant(50, wants=((0, SECOND), (5 * SECOND, 9 * SECOND)))
    )
    gpu.run(5 * SECOND)

    gpu.forget_work()
    gpu.run(200 * MS)

    assert gpu.shares() == pytest.approx([50, 50], abs=6)


def test_the_gpu_is_free_again_20_ms_after_the_last_neighbour() -> None:
    gpu = Contention(LaunchingTenant(50), LaunchingTenant(50, wants=((0, SECOND),)))
    gpu.run(SECOND)
    assert gpu.grant(gpu.tenants[0]).mode == WINDOWS

    gpu.run(50 * MS)  # demand counts for 10 ms, its last work for 6 ms

    assert gpu.grant(gpu.tenants[0]).mode == FREE


def test_an_idle_neighbour_waits_for_its_window_while_others_contend() -> None:
    gpu = Contention(LaunchingTenant(50), LaunchingTenant(50), LaunchingTenant(50, wants=()))

    gpu.run(100 * MS)

    idle = gpu.grant(gpu.tenants[2])
    assert (idle.mode, idle.end_ns) == (WINDOWS, 0)


def test_one_that_is_off_is_left_alone() -> None:
    policy = ffi.new("struct policy *")
    lib.policy_init(policy)
    usage = ffi.new("struct vgpu_usage_device *", {"demand_ns": START_NS})
    for index in range(2):
        assert lib.policy_join(policy, 50, 0) == index

    lib.policy_observe(policy, 0, START_NS, usage, True, True)
    lib.policy_observe(policy, 1, START_NS, usage, True, False)
    lib.policy_step(policy, START_NS)

    assert [policy.tenants[i].mode for i in range(2)] == [FREE, FREE]


def test_one_that_is_withheld_has_nothing_and_the_others_share_without_it() -> None:
    gpu = Contention(LaunchingTenant(20), LaunchingTenant(30), LaunchingTenant(50))
    gpu.run(SECOND)

    lib.policy_withhold(gpu.policy, 0, gpu.now_ns + 3 * SECOND)
    gpu.run(100 * MS)
    gpu.forget_work()
    gpu.run(2 * SECOND)
    assert gpu.shares() == pytest.approx([0, 37.5, 62.5], abs=0.5)
    assert lib.policy_asks_in_vain(gpu.policy, 0, gpu.now_ns)

    gpu.run(SECOND)
    gpu.forget_work()
    gpu.run(2 * SECOND)
    assert gpu.shares() == pytest.approx([20, 30, 50], abs=0.5)


def test_a_neighbour_of_one_that_is_withheld_is_free() -> None:
    gpu = Contention(LaunchingTenant(20), LaunchingTenant(30))
    gpu.run(SECOND)

    lib.policy_withhold(gpu.policy, 0, gpu.now_ns + 3 * SECOND)
    gpu.run(100 * MS)

    tenants = gpu.policy.tenants
    assert (tenants[0].mode, tenants[0].end_ns, tenants[1].mode) == (WINDOWS, 0, FREE)
    gpu.run(3 * SECOND)
    assert tenants[0].mode == tenants[1].mode == WINDOWS
