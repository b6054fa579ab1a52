"""The arbiter's windows one decision at a time: published, moved, yielded, overrun and lost."""

import pytest

from libvgpu._native import ffi, lib
from support.shim.contention import (
    LATENCY_NS,
    MS,
    NEVER,
    SECOND,
    START_NS,
    Contention,
    LaunchingTenant,
)

FREE, WINDOWS = lib.VGPU_GRANT_FREE, lib.VGPU_GRANT_WINDOWS
QUANTUM_NS = lib.WINDOW_QUANTUM_NS


class Hand:
    """Two tenants of equal weight played by hand, for one decision at a time."""

    def __init__(self) -> None:
        self.policy = ffi.new("struct policy *")
        lib.policy_init(self.policy)
        self.usage = [ffi.new("struct vgpu_usage_device *") for _ in range(2)]
        self.now_ns = START_NS
        for _ in range(2):
            lib.policy_join(self.policy, 50, 7)
        self.usage[1].busy_until_ns = START_NS + MS  # so that 0 comes first, when 1 has finished
        self.step(demands=(0, 1))
        assert self.policy.next == 0
        self.at(START_NS + MS, demands=(0, 1))
        assert self.policy.holder == 0

    def at(self, now_ns: int, demands: tuple[int, ...] = (), rings: tuple[int, ...] = ()) -> int:
        self.now_ns = now_ns
        return self.step(demands, rings)

    def step(self, demands: tuple[int, ...] = (), rings: tuple[int, ...] = ()) -> int:
        for index in demands:
            self.usage[index].demand_ns = self.now_ns
        for index in range(2):
            usage, rang = self.usage[index], index in rings
            lib.policy_observe(self.policy, index, self.now_ns, usage, rang, False)
        return int(lib.policy_step(self.policy, self.now_ns))

    def grant(self, index: int) -> tuple[int, int, int]:
        tenant = self.policy.tenants[index]
        return tenant.start_ns - START_NS, tenant.end_ns - START_NS, tenant.window


def test_a_window_is_published_ahead_and_moves_with_the_prediction() -> None:
    hand = Hand()
    assert hand.grant(0) == (MS, 11 * MS, 8)

    due_ns = START_NS + 11 * MS - lib.POLICY_LEAD_NS
    hand.usage[0].busy_until_ns = START_NS + 10 * MS
    hand.at(due_ns - 1, demands=(0, 1))
    assert hand.policy.next == -1
    hand.at(due_ns, demands=(0, 1))
    assert hand.grant(1) == (11 * MS, 21 * MS, 8)

    hand.usage[0].busy_until_ns = START_NS + 12 * MS
    hand.at(due_ns + MS, demands=(1,))
    assert hand.grant(1) == (12 * MS, 22 * MS, 8)
    hand.usage[0].busy_until_ns += 10_000  # too little to tell
    hand.at(due_ns + MS + 1, demands=(1,))
    assert hand.grant(1) == (12 * MS, 22 * MS, 8)


def test_a_yield_brings_the_next_window_forward() -> None:
    hand = Hand()
    hand.usage[0].busy_until_ns = START_NS + 5 * MS
    hand.usage[0].demand_ns = 0
    hand.usage[0].yielded_window = 8

    hand.at(START_NS + 3 * MS, demands=(1,), rings=(0,))

    assert hand.grant(1) == (5 * MS, 15 * MS, 8)
    assert hand.grant(0)[1] == 5 * MS  # nothing of its own window is left beyond


def test_a_yield_after_the_next_window_was_published_brings_it_forward_too() -> None:
    hand = Hand()
    hand.usage[0].busy_until_ns = START_NS + 10 * MS
    hand.at(START_NS + 9 * MS, demands=(0, 1))
    assert hand.grant(1)[0] == 11 * MS

    hand.usage[0].yielded_window = 8
    hand.at(START_NS + 9 * MS + 1000, demands=(1,), rings=(0,))

    assert hand.grant(1)[0] == 10 * MS


def test_one_that_yields_is_left_alone_while_nobody_else_wants() -> None:
    hand = Hand()
    hand.usage[0].busy_until_ns = START_NS + 3 * MS
    hand.usage[0].demand_ns = 0
    hand.usage[0].yielded_window = 8
    hand.usage[1].demand_ns = 0
    hand.at(START_NS + 3 * MS, rings=(0,))
    before_ns = hand.policy.tenants[0].occupancy_ns

    hand.at(START_NS + 9 * MS)

    assert hand.grant(0) == (MS, 11 * MS, 8)
    assert hand.policy.tenants[0].occupancy_ns == before_ns == 2 * MS
    hand.at(START_NS + 10 * MS, demands=(0,), rings=(0,))
    assert hand.grant(0)[1:] == (20 * MS, 9)  # asked again: a new window, which it may yield again


def test_one_whose_launch_did_not_fit_gets_a_new_window_where_it_is_its_turn() -> None:
    hand = Hand()
    hand.policy.tenants[1].tag = 1e9  # it has had more than its share
    now_ns = START_NS + 8 * MS
    hand.usage[0].busy_until_ns = now_ns
    hand.usage[0].yielded_window = 8
    hand.at(now_ns, demands=(0, 1), rings=(0,))
    assert hand.policy.holder == 0  # it is given a moment to ask again
    assert hand.policy.tenants[0].is_changed  # and woken

    hand.at(now_ns + 50_000, demands=(0, 1), rings=(0,))

    assert hand.policy.holder == 0
    assert hand.grant(0) == (MS, 18 * MS + 50_000, 9)


def test_one_that_does_not_ask_again_is_not_waited_for() -> None:
    hand = Hand()
    hand.policy.tenants[1].tag = 1e9
    now_ns = START_NS + 8 * MS
    hand.usage[0].busy_until_ns = hand.usage[0].demand_ns = now_ns
    hand.usage[0].yielded_window = 8

    due_ns = hand.at(now_ns, demands=(1,), rings=(0,))

    assert due_ns == now_ns + lib.POLICY_GRACE_NS
    hand.at(due_ns, demands=(1,))
    assert hand.policy.holder == 1


def test_a_window_that_is_not_used_is_lost_until_its_tenant_rings() -> None:
    hand = Hand()
    hand.usage[0].demand_ns = START_NS + MS - 100  # the last it did was to wait for its window
    begun_ns = START_NS + MS + lib.POLICY_IDLE_NS

    hand.at(begun_ns - 1, demands=(1,))
    assert hand.policy.holder == 0
    hand.at(begun_ns, demands=(1,))
    assert hand.policy.holder == 1
    assert hand.grant(0)[1] == begun_ns - START_NS

    # Its demand counts again only once it has rung.
    hand.usage[1].busy_until_ns = begun_ns + QUANTUM_NS
    late_ns = begun_ns + QUANTUM_NS - MS
    hand.at(late_ns, demands=(0, 1))
    assert hand.policy.next == -1
    hand.at(late_ns + 1000, demands=(0,), rings=(0,))
    assert not hand.policy.tenants[0].must_ring


def test_a_window_that_is_used_no_more_is_lost_in_the_middle() -> None:
    hand = Hand()
    hand.usage[0].busy_until_ns = START_NS + 4 * MS
    hand.at(START_NS + 3 * MS, demands=(0, 1))

    lost_ns = START_NS + 4 * MS + lib.POLICY_IDLE_NS
    assert hand.at(lost_ns - 1, demands=(1,)) == lost_ns
    assert hand.policy.holder == 0
    hand.at(lost_ns, demands=(1,))

    assert hand.policy.holder == 1


def test_a_stopped_tenant_costs_its_neighbour_little() -> None:
    stopped, other = LaunchingTenant(50), LaunchingTenant(50)
    gpu = Contention(stopped, other)
    gpu.run(SECOND)
    stopped.is_stopped = True

    gpu.forget_work()
    gpu.run(50 * MS)

    assert other.work_ns >= 35 * MS  # 6 ms of its work in flight, and one lost window
    gpu.run(SECOND)
    assert gpu.grant(other).mode == FREE


def test_an_overrun_is_debt_that_is_repaid() -> None:
    long, other = LaunchingTenant(50), LaunchingTenant(50)
    gpu = Contention(long, other)
    gpu.run(SECOND)
    long.kernel_ns = 500 * MS
    while gpu.policy.overruns == 0:
        gpu.run(MS)
    long.kernel_ns = MS
    overrun_end_ns = gpu.now_ns

    gpu.run(400 * MS)
    launched = [at_ns for at_ns in long.launch_times if at_ns > overrun_end_ns]
    assert launched == [], "its debt is not held against it"
    gpu.run(10 * SECOND)

    assert 480 * MS <= gpu.policy.longest_overrun_ns <= 500 * MS
    assert gpu.occupied() == pytest.approx([50, 50], abs=0.4)
    assert gpu.shares() == pytest.approx([50, 50], abs=0.4)


def test_one_that_hangs_delays_others_by_two_seconds_and_is_not_starved_for_it() -> None:
    """Its prediction runs ahead of the clock for a minute: nobody waits for that, or repays it."""
    liar, other = LaunchingTenant(50), LaunchingTenant(50)
    gpu = Contention(liar, other)
    gpu.run(SECOND)
    liar.claims_ns = 9 * SECOND
    gpu.run(100 * MS)
    liar.claims_ns = 0
    gpu.forget_work()

    gpu.run(2 * SECOND + 50 * MS)
    assert other.work_ns > 0, "it waits for more than two seconds"
    assert gpu.policy.overruns == 1
    assert gpu.policy.longest_overrun_ns == pytest.approx(9 * SECOND, abs=100 * MS)

    gpu.forget_work()
    gpu.run(1900 * MS)
    assert gpu.shares()[0] <= 6, "the debt is not held against it"
    gpu.run(200 * MS)
    gpu.forget_work()
    gpu.run(2 * SECOND)
    assert gpu.shares() == pytest.approx([50, 50], abs=3)


@pytest.mark.parametrize(
    "claims_ns", [60 * SECOND, (1 << 63) - START_NS, (1 << 64) - 1 - START_NS - 3600 * SECOND]
)
def test_a_prediction_that_cannot_be_is_none(claims_ns: int) -> None:
    gpu = Contention(LaunchingTenant(50, claims_ns=claims_ns), LaunchingTenant(50))

    gpu.run(5 * SECOND)

    assert gpu.occupied()[1] >= 45
    assert gpu.policy.longest_overrun_ns <= 20 * MS


def test_one_that_always_claims_to_be_busy_harms_itself() -> None:
    """A second more at each launch: the others wait for it, and then have that second too."""
    gpu = Contention(LaunchingTenant(50, claims_ns=SECOND), LaunchingTenant(50))

    gpu.run(60 * SECOND)

    assert gpu.occupied() == pytest.approx([50, 50], abs=3)
    assert gpu.tenants[1].work_ns >= 25 * SECOND
    assert gpu.policy.overruns > 10


@pytest.mark.parametrize("demand_ns", [(1 << 64) - 1, 1 << 63, START_NS + 3600 * SECOND])
def test_a_demand_of_the_future_is_none(demand_ns: int) -> None:
    policy = ffi.new("struct policy *")
    lib.policy_init(policy)
    assert lib.policy_join(policy, 50, 0) == 0
    usage = ffi.new("struct vgpu_usage_device *", {"demand_ns": demand_ns})

    lib.policy_observe(policy, 0, START_NS, usage, True, False)

    assert lib.policy_step(policy, START_NS) == NEVER


def test_a_tenant_that_leaves_gives_its_window_up() -> None:
    gpu = Contention(LaunchingTenant(50), LaunchingTenant(50), LaunchingTenant(50))
    gpu.run(SECOND)
    gone = gpu.tenants.pop(gpu.policy.holder)

    lib.policy_leave(gpu.policy, gone.index)
    gpu.forget_work()
    gpu.step_at_ns = gpu.now_ns
    gpu.run(SECOND)

    assert gpu.shares() == pytest.approx([50, 50], abs=1.5)
    assert lib.policy_join(gpu.policy, 1, 5) == gone.index


def test_there_is_room_for_so_many_tenants() -> None:
    policy = ffi.new("struct policy *")
    lib.policy_init(policy)

    indices = [lib.policy_join(policy, 1, 0) for _ in range(lib.POLICY_MAX_TENANTS + 1)]

    assert indices == [*range(lib.POLICY_MAX_TENANTS), -1]


def test_only_rings_that_bring_news_are_listened_to() -> None:
    gpu = Contention(LaunchingTenant(50), LaunchingTenant(50), LaunchingTenant(50, wants=()))
    gpu.run(SECOND + LATENCY_NS)
    holder = gpu.policy.holder

    heard = [bool(lib.policy_listens(gpu.policy, index)) for index in range(3)]

    assert heard == [holder == 0, holder == 1, True]
