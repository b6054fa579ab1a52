"""When the arbiter gives turns and when it lets all run at once, over simulated time."""

import random

import pytest

from libvgpu._native import lib
from support.shim.contention import MS, SECOND, Contention, LaunchingTenant

FREE, WINDOWS, SHARED = lib.VGPU_GRANT_FREE, lib.VGPU_GRANT_WINDOWS, lib.VGPU_GRANT_SHARED
LOOK_NS = lib.POLICY_SHARED_LOOK_NS
#: Averages of what is wanted have to follow, too (demand.h).
AVERAGE_NS = lib.DEMAND_AVERAGE_NS


def light(
    weight: int = 50, used: float = 0.33, kernel_ns: int = MS // 2, **more: object
) -> LaunchingTenant:
    """A tenant that is launch-bound and uses so much of the GPU."""
    host_ns = int(kernel_ns / used)
    return LaunchingTenant(weight, kernel_ns, host_ns=host_ns, counts=True, **more)  # type: ignore[arg-type]


def heavy(weight: int = 50, kernel_ns: int = MS, **more: object) -> LaunchingTenant:
    """A tenant that launches as fast as it may."""
    return LaunchingTenant(weight, kernel_ns, counts=True, **more)  # type: ignore[arg-type]


def settle(gpu: Contention) -> None:
    """Runs until what tenants want is known and acted on."""
    gpu.run(SECOND)
    gpu.forget_work()


def test_two_launch_bound_tenants_leave_turns_and_lose_nothing() -> None:
    gpu = Contention(light(), light())

    modes = gpu.modes(SECOND)
    gpu.forget_work()
    gpu.run(SECOND)

    assert [mode for _, mode in modes[1:]] in ([WINDOWS, SHARED], [FREE, WINDOWS, SHARED])
    began_ns, ended_ns = modes[-2][0], modes[-1][0]
    passed_ns = gpu.policy.mode_ns
    assert passed_ns[WINDOWS] == pytest.approx(ended_ns - began_ns, abs=LOOK_NS)
    assert passed_ns[SHARED] > SECOND / 2
    assert lib.POLICY_ENOUGH_NS <= ended_ns - began_ns <= lib.POLICY_ENOUGH_NS + 5 * LOOK_NS
    for tenant in gpu.tenants:
        assert tenant.work_ns == pytest.approx(0.33 * SECOND, rel=0.02)


def test_what_was_found_stays_for_the_next_time() -> None:
    wants = ((0, SECOND), (2 * SECOND, 3 * SECOND), (4 * SECOND, 5 * SECOND))
    gpu = Contention(light(wants=wants), light(wants=wants))
    settle(gpu)

    modes = [mode for _, mode in gpu.modes(4 * SECOND)]

    assert modes == [SHARED, FREE, SHARED, FREE, SHARED] or modes == [
        *(SHARED, FREE, SHARED, FREE, SHARED, FREE)
    ]


def test_turns_stay_for_the_next_time_too() -> None:
    wants = ((0, SECOND), (2 * SECOND, 3 * SECOND))
    gpu = Contention(heavy(wants=wants), heavy(wants=wants))
    settle(gpu)

    modes = [mode for _, mode in gpu.modes(int(1.9 * SECOND))]

    assert modes == [WINDOWS, FREE, WINDOWS]


@pytest.mark.parametrize("weights", [(50, 50), (10, 90), (20, 30, 50)])
@pytest.mark.parametrize("syncs", [False, True], ids=["queued", "synced"])
@pytest.mark.parametrize("kernel_ns", [MS // 2, 7 * MS, 20 * MS])
def test_tenants_that_all_want_the_gpu_never_leave_turns(
    weights: tuple[int, ...], syncs: bool, kernel_ns: int
) -> None:
    gpu = Contention(*[heavy(weight, kernel_ns, syncs=syncs) for weight in weights])
    gpu.run(20 * MS)

    modes = gpu.modes(5 * SECOND)

    assert modes == [(0, WINDOWS)]
    assert gpu.shares() == pytest.approx(weights, abs=0.8)


@pytest.mark.parametrize("weights", [(30, 70), (20, 80)])
def test_turns_begin_soon_after_both_want_all(weights: tuple[int, int]) -> None:
    gpu = Contention(light(weights[0]), light(weights[1]))
    settle(gpu)
    assert gpu.grant(gpu.tenants[0]).mode == SHARED

    for tenant in gpu.tenants:
        tenant.host_ns = 1000
    modes = gpu.modes(SECOND)

    assert [mode for _, mode in modes] == [SHARED, WINDOWS]
    assert lib.POLICY_SCARCE_NS <= modes[1][0] <= lib.POLICY_SCARCE_NS + AVERAGE_NS + 2 * LOOK_NS


@pytest.mark.parametrize("weights", [(50, 50), (30, 70)])
def test_turns_that_begin_later_split_by_weight(weights: tuple[int, int]) -> None:
    gpu = Contention(light(weights[0]), light(weights[1]))
    settle(gpu)

    for tenant in gpu.tenants:
        tenant.host_ns = 1000
    modes = gpu.modes(SECOND)
    gpu.forget_work()
    gpu.run(5 * SECOND)

    assert [mode for _, mode in modes] == [SHARED, WINDOWS]
    assert gpu.shares() == pytest.approx(weights, abs=0.4)
    assert sum(tenant.work_ns for tenant in gpu.tenants) >= 0.985 * 5 * SECOND


def test_turns_end_when_it_wants_less_again() -> None:
    gpu = Contention(heavy(50), heavy(50))
    settle(gpu)

    gpu.tenants[0].host_ns = gpu.tenants[1].host_ns = 4 * MS  # a quarter each
    modes = gpu.modes(SECOND)

    assert [mode for _, mode in modes] == [WINDOWS, SHARED]
    assert lib.POLICY_ENOUGH_NS <= modes[1][0] <= lib.POLICY_ENOUGH_NS + 4 * AVERAGE_NS


def test_a_light_one_shares_with_one_that_wants_all() -> None:
    """Only one wants more than its share: turns would win nobody anything."""
    gpu = Contention(light(used=0.2), heavy())
    settle(gpu)

    modes = gpu.modes(5 * SECOND)

    assert modes == [(0, SHARED)]
    assert gpu.tenants[0].work_ns == pytest.approx(0.2 * 5 * SECOND, rel=0.05)
    assert sum(tenant.work_ns for tenant in gpu.tenants) >= 0.98 * 5 * SECOND


@pytest.mark.parametrize(("weight", "used"), [(30, 0.33), (10, 0.2)])
def test_a_launch_bound_one_keeps_its_share_next_to_one_that_wants_all(
    weight: int, used: float
) -> None:
    gpu = Contention(light(weight, used=used), heavy(100 - weight))
    settle(gpu)

    gpu.run(2 * SECOND)

    assert gpu.tenants[0].work_ns >= 0.95 * weight / 100 * 2 * SECOND


@pytest.mark.parametrize("used", [0.40, 0.43, 0.45, 0.46, 0.47, 0.475, 0.48, 0.49, 0.52])
@pytest.mark.parametrize("jitter", [0.0, 0.5])
def test_at_the_threshold_the_mode_stays(used: float, jitter: float) -> None:
    tenants = [light(used=used), light(used=used)]
    gpu = Contention(*tenants)
    chance = random.Random(5)
    settle(gpu)

    changes = 0
    for _ in range(600):
        for tenant in tenants:
            spread = 1 + jitter * (chance.random() - 0.5)
            tenant.host_ns = int(tenant.kernel_ns / used * spread)
        changes += len(gpu.modes(5 * MS, 5 * MS)) - 1

    assert changes <= 2


def test_tenants_whose_shims_do_not_count_keep_turns() -> None:
    gpu = Contention(
        LaunchingTenant(50, MS // 2, host_ns=2 * MS), LaunchingTenant(50, MS // 2, host_ns=2 * MS)
    )
    gpu.run(20 * MS)

    assert gpu.modes(2 * SECOND) == [(0, WINDOWS)]


def test_one_whose_shim_does_not_count_takes_turns_with_one_that_wants_all() -> None:
    gpu = Contention(LaunchingTenant(50, MS // 2), heavy())
    gpu.run(20 * MS)

    assert gpu.modes(2 * SECOND) == [(0, WINDOWS)]
    assert gpu.shares() == pytest.approx([50, 50], abs=0.8)


def test_all_that_share_are_told_at_once_and_are_looked_at_every_10_ms() -> None:
    gpu = Contention(light(), light(), light(used=0.1))
    settle(gpu)
    steps = gpu.steps

    gpu.run(SECOND)

    assert [gpu.grant(tenant).mode for tenant in gpu.tenants] == [SHARED] * 3
    assert gpu.steps - steps <= 2 * SECOND / LOOK_NS
