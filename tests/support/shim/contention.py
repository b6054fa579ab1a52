"""Tenants of one contended GPU over simulated time, for the arbiter's policy.

Every tenant keeps its side of the contract as the shim does: it stores its demand, launches within
its windows what fits them, yields the rest, and rings. Rings and published grants take
LATENCY_NS to arrive. The GPU runs what is launched in order.
"""

from dataclasses import dataclass, field
from typing import Any

from libvgpu._native import ffi, lib

MS = 1_000_000
SECOND = 1000 * MS
START_NS = 100 * SECOND
LATENCY_NS = 20_000
IN_FLIGHT_NS = 6 * MS
REFRESH_NS = MS
NEVER = lib.POLICY_NEVER


@dataclass
class LaunchingTenant:
    """One program that launches kernels of one length.

    Attributes:
        weight: of its container.
        kernel_ns: how long each of its kernels lasts.
        syncs: whether it waits for each kernel before it launches the next.
        cap_percent: its own cap; 100 for none.
        wants: the times in which it has work, as (from, to).
        claims_ns: its busy_until is so much later than the truth, whenever it has launched.
        asks_again_ns: how soon it stores its demand again after it yielded what did not fit.
        withdraws: whether it clears its demand when its own cap stops it.
        is_stopped: it does nothing any more, as after SIGSTOP.
        host_ns: what the host takes for a launch; longer than its kernel, and it is launch-bound.
        counts: whether its shim says what was charged and for how long it was held up.
    """

    weight: int
    kernel_ns: int = MS
    syncs: bool = False
    cap_percent: int = 100
    wants: tuple[tuple[int, int], ...] = ((0, 1 << 62),)
    claims_ns: int = 0
    is_stopped: bool = False
    asks_again_ns: int = 5000
    withdraws: bool = True
    host_ns: int = 1000
    counts: bool = False
    index: int = -1
    busy_until_ns: int = 0
    work_ns: int = 0
    cap_time_ns: int = 0
    launched_window: int = -1
    next_act_ns: int = 0
    stalled_since_ns: int = 0
    rings: bool = False
    launch_times: list[int] = field(default_factory=list)
    usage: Any = field(default_factory=lambda: ffi.new("struct vgpu_usage_device *"))


class Contention:
    """Runs the policy and its tenants; ``now_ns`` is the simulated clock."""

    def __init__(self, *tenants: LaunchingTenant) -> None:
        self.policy = ffi.new("struct policy *")
        lib.policy_init(self.policy)
        self.now_ns = START_NS
        self.gpu_free_ns = 0
        self.tenants = list(tenants)
        self.steps = 0
        self.step_at_ns = self.now_ns
        for tenant in tenants:
            tenant.index = lib.policy_join(self.policy, tenant.weight, 0)
            tenant.next_act_ns = self.now_ns

    def modes(self, duration_ns: int, step_ns: int = MS) -> list[tuple[int, int]]:
        """Runs, and returns each mode of the first tenant and when it began, from now on."""
        begin_ns, found = self.now_ns, [(0, int(self.grant(self.tenants[0]).mode))]
        while self.now_ns < begin_ns + duration_ns:
            self.run(step_ns)
            mode = int(self.grant(self.tenants[0]).mode)
            if mode != found[-1][1]:
                found.append((self.now_ns - begin_ns, mode))
        return found

    def grant(self, tenant: LaunchingTenant) -> Any:
        return self.policy.tenants[tenant.index]

    def run(self, duration_ns: int) -> None:
        until_ns = self.now_ns + duration_ns
        while True:
            actor = min(self.tenants, key=lambda t: t.next_act_ns)
            at_ns = min(self.step_at_ns, actor.next_act_ns)
            if at_ns >= until_ns:
                self.now_ns = until_ns
                return
            self.now_ns = max(self.now_ns, at_ns)
            if self.step_at_ns <= actor.next_act_ns:
                self._step()
            else:
                self._act(actor)

    def shares(self) -> list[float]:
        """Returns each tenant's part of the work done, in percent."""
        whole = sum(t.work_ns for t in self.tenants)
        return [100 * t.work_ns / whole for t in self.tenants]

    def occupied(self) -> list[float]:
        """Returns each tenant's part of the occupancy, in percent."""
        occupancy = [self.grant(t).occupancy_ns for t in self.tenants]
        return [100 * part / sum(occupancy) for part in occupancy]

    def forget_work(self) -> None:
        for tenant in self.tenants:
            tenant.work_ns = 0
            self.grant(tenant).occupancy_ns = 0

    def _step(self) -> None:
        self.steps += 1
        for tenant in self.tenants:
            lib.policy_observe(
                self.policy, tenant.index, self.now_ns, tenant.usage, tenant.rings, False
            )
            tenant.rings = False
        self.step_at_ns = lib.policy_step(self.policy, self.now_ns)
        assert self.step_at_ns > self.now_ns, "the policy asks to be called at once, for ever"
        for tenant in self.tenants:
            grant = self.grant(tenant)
            if grant.is_changed:
                grant.is_changed = False
                tenant.next_act_ns = min(tenant.next_act_ns, self.now_ns + LATENCY_NS)

    def _ring(self, tenant: LaunchingTenant) -> None:
        tenant.rings = True
        self.step_at_ns = min(self.step_at_ns, self.now_ns + LATENCY_NS)

    def _demand(self, tenant: LaunchingTenant) -> None:
        if self.now_ns - tenant.usage.demand_ns > 5 * MS:
            self._ring(tenant)
        tenant.usage.demand_ns = self.now_ns

    def _act(self, tenant: LaunchingTenant) -> None:
        now_ns = self.now_ns
        if tenant.is_stopped:
            tenant.next_act_ns = NEVER
            return
        if tenant.stalled_since_ns:
            self._count_stall(tenant)
        since_start = now_ns - START_NS
        later = [begin for begin, _ in tenant.wants if begin > since_start]
        if not any(begin <= since_start < end for begin, end in tenant.wants):
            tenant.next_act_ns = START_NS + later[0] if later else NEVER
            return
        most_ns = 0 if tenant.syncs else IN_FLIGHT_NS
        if tenant.busy_until_ns > now_ns + most_ns:
            tenant.next_act_ns = tenant.busy_until_ns - most_ns
            tenant.stalled_since_ns = now_ns
            return
        grant = self.grant(tenant)
        if tenant.cap_time_ns > now_ns:
            tenant.next_act_ns = tenant.cap_time_ns
            tenant.stalled_since_ns = now_ns
            if grant.window != tenant.usage.yielded_window:
                if tenant.withdraws:
                    tenant.usage.demand_ns = 0
                tenant.usage.yielded_window = grant.window
                self._ring(tenant)
            return
        self._demand(tenant)
        if grant.mode != lib.VGPU_GRANT_WINDOWS:
            self._launch(tenant)
        elif grant.start_ns <= now_ns < grant.end_ns and grant.window != (
            tenant.usage.yielded_window
        ):
            ends_ns = max(now_ns, tenant.busy_until_ns)
            if (
                tenant.launched_window != grant.window
                or ends_ns + tenant.kernel_ns // 2 <= grant.end_ns
            ):
                tenant.launched_window = grant.window
                self._launch(tenant)
            else:
                tenant.usage.yielded_window = grant.window
                self._ring(tenant)
                tenant.next_act_ns = now_ns + tenant.asks_again_ns
                tenant.stalled_since_ns = now_ns
        else:
            self._wait(tenant)

    def _wait(self, tenant: LaunchingTenant) -> None:
        self._ring(tenant)
        tenant.stalled_since_ns = self.now_ns
        start_ns = self.grant(tenant).start_ns
        refresh_ns = self.now_ns + REFRESH_NS
        tenant.next_act_ns = min(refresh_ns, start_ns) if start_ns > self.now_ns else refresh_ns

    def _launch(self, tenant: LaunchingTenant) -> None:
        begins_ns = max(self.now_ns, self.gpu_free_ns)
        self.gpu_free_ns = begins_ns + tenant.kernel_ns
        tenant.busy_until_ns = self.gpu_free_ns
        tenant.usage.busy_until_ns = self.gpu_free_ns + tenant.claims_ns
        tenant.work_ns += tenant.kernel_ns
        tenant.launch_times.append(self.now_ns)
        if tenant.cap_percent < 100:
            cost_ns = tenant.kernel_ns * 100 // tenant.cap_percent
            tenant.cap_time_ns = max(tenant.cap_time_ns, self.now_ns - 50 * MS) + cost_ns
        if tenant.counts:
            tenant.usage.charged_ns += tenant.kernel_ns
        most_ns = 0 if tenant.syncs else IN_FLIGHT_NS
        ready_ns = self.now_ns + tenant.host_ns
        tenant.next_act_ns = max(ready_ns, tenant.busy_until_ns - most_ns)
        if tenant.next_act_ns > ready_ns:
            tenant.stalled_since_ns = ready_ns

    def _count_stall(self, tenant: LaunchingTenant) -> None:
        if tenant.counts:
            tenant.usage.stalled_ns += max(0, self.now_ns - tenant.stalled_since_ns)
        tenant.stalled_since_ns = 0
