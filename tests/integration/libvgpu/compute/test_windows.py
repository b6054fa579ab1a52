"""A tenant under an arbiter, played by the test: it keeps to its windows and says what it wants."""

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from libvgpu.limits import ComputeMode, ContainerLimits, DeviceLimit, Family
from libvgpu.region import create
from libvgpu.sim import PROFILES, Machine
from support.lines import expect
from support.shim.grants import Grants, now_ns
from support.shim.slices import Slice
from support.sim.driver import driver_version
from support.sim.programs import PRELUDE, busy

GIB = 1 << 30
MS = 1_000_000
SETTLE_SECONDS = 0.3

Tenant = Callable[..., tuple[Slice, Grants]]
pytestmark = pytest.mark.virtual


@pytest.fixture
def tenant(machine: Machine, tmp_path: Path) -> Iterator[Tenant]:
    """Returns ``tenant(percent, mode)``: a slice and its arbiter, which has granted nothing yet."""
    made: list[tuple[Slice, Grants]] = []

    def make(percent: int, mode: ComputeMode = ComputeMode.STRICT) -> tuple[Slice, Grants]:
        directory = tmp_path / f"slice-{len(made)}"
        limit = DeviceLimit(machine.devices[0].uuid, GIB, core_percent=percent, compute_mode=mode)
        create(directory, ContainerLimits("tenant", Family.VGPU, (limit,)))
        made.append((Slice(machine, directory), Grants(directory)))
        return made[-1]

    yield make
    for part, grants in made:
        part.close()
        grants.die()


def begin(part: Slice, kernel_ns: int, after: str = "pass") -> subprocess.Popen[str]:
    process = part.start(PRELUDE + busy(kernel_ns, after))
    expect(process)
    return process


def settled(tenant: Tenant, kernel_ns: int = MS, after: str = "pass") -> Grants:
    """Begins an elastic tenant of 60 percent, to which everything is free."""
    part, grants = tenant(60, ComputeMode.ELASTIC)
    grants.publish("free")
    begin(part, kernel_ns, after)
    time.sleep(SETTLE_SECONDS)
    return grants


def busy_ns(machine: Machine) -> int:
    return machine.books()[0].busy_ns


def percent_in(machine: Machine, seconds: float) -> float:
    """Returns how much of the device all have in the next seconds."""
    first = machine.books()[0]
    time.sleep(seconds)
    last = machine.books()[0]
    return 100 * (last.busy_ns - first.busy_ns) / (last.clock_ns - first.clock_ns)


@pytest.mark.parametrize("after", ["pass", "check(cuda.cuCtxSynchronize())"])
def test_a_tenant_runs_in_its_windows_and_at_no_other_time(
    machine: Machine, tenant: Tenant, after: str
) -> None:
    grants = settled(tenant, MS, after)
    grants.publish("windows")
    time.sleep(0.1)
    held = percent_in(machine, 0.1)

    before_ns = busy_ns(machine)
    grants.open(0.05)
    time.sleep(0.15)
    used_ns = busy_ns(machine) - before_ns

    assert held == 0
    assert used_ns == pytest.approx(50 * MS, abs=MS)


def test_a_window_that_is_published_ahead_is_waited_for_to_the_moment(
    machine: Machine, tenant: Tenant
) -> None:
    grants = settled(tenant)
    grants.publish("windows")
    time.sleep(0.1)
    before_ns, start_ns = busy_ns(machine), now_ns() + 30 * MS
    grants.publish("windows", start_ns=start_ns, end_ns=start_ns + 10 * MS, is_new=True)
    time.sleep(0.015)
    early_ns = busy_ns(machine) - before_ns
    time.sleep(0.1)

    assert early_ns == 0
    assert busy_ns(machine) - before_ns == pytest.approx(10 * MS, abs=MS)


def test_the_first_launch_of_a_window_always_fits_and_the_rest_is_given_back(
    machine: Machine, tenant: Tenant
) -> None:
    grants = settled(tenant, 20 * MS)
    time.sleep(SETTLE_SECONDS)
    grants.publish("windows")
    time.sleep(0.15)
    before_ns = busy_ns(machine)
    window = grants.open(0.005)
    time.sleep(0.1)

    assert busy_ns(machine) - before_ns == 20 * MS
    assert grants.told().yielded_window == window


def test_one_that_begins_and_one_that_waits_ring_and_one_that_runs_does_not(
    machine: Machine, tenant: Tenant
) -> None:
    grants = settled(tenant)
    begun = grants.heard()
    time.sleep(0.2)
    running, wanted_ns = grants.heard(), now_ns() - grants.told().demand_ns
    grants.publish("windows")
    time.sleep(0.2)

    assert begun >= 1
    assert 1 <= running <= 3  # it asks whether the arbiter lives
    assert wanted_ns < 10 * MS
    assert 100 <= grants.heard() <= 220  # at most one each millisecond


@pytest.mark.parametrize(
    ("mode", "percent"), [(ComputeMode.STRICT, 30), (ComputeMode.ELASTIC, 100)]
)
def test_what_nobody_else_wants_goes_to_an_elastic_tenant_only(
    machine: Machine, tenant: Tenant, mode: ComputeMode, percent: int
) -> None:
    part, grants = tenant(30, mode)
    grants.publish("free")
    begin(part, MS)
    time.sleep(SETTLE_SECONDS)

    assert percent_in(machine, 1) == pytest.approx(percent, abs=0.5)


def test_a_strict_tenant_keeps_to_its_cap_in_a_window_too(machine: Machine, tenant: Tenant) -> None:
    part, grants = tenant(30)
    grants.publish("free")
    begin(part, MS)
    time.sleep(SETTLE_SECONDS)
    window = grants.open(30)
    time.sleep(0.1)

    assert percent_in(machine, 1) == pytest.approx(30, abs=1.6)
    assert grants.told().yielded_window == window


@pytest.mark.parametrize(
    ("granted", "end"),
    [("windows", Grants.die), ("free", Grants.die), ("windows", Grants.hang)],
    ids=["windows", "free", "hangs"],
)
def test_without_its_arbiter_a_tenant_keeps_to_its_own_cap(
    machine: Machine, tenant: Tenant, granted: str, end: Callable[[Grants], None]
) -> None:
    part, grants = tenant(40, ComputeMode.ELASTIC)
    grants.publish("free")
    begin(part, MS)
    time.sleep(SETTLE_SECONDS)
    grants.publish(granted)
    end(grants)
    time.sleep(SETTLE_SECONDS)

    assert percent_in(machine, 1) == pytest.approx(40, abs=0.5)


def test_a_window_that_was_missed_is_not_used(machine: Machine, tenant: Tenant) -> None:
    grants = settled(tenant)
    grants.publish("windows")
    time.sleep(0.1)
    end_ns = now_ns() - 10 * MS
    grants.publish("windows", start_ns=end_ns - 10 * MS, end_ns=end_ns, is_new=True)

    assert percent_in(machine, 0.2) == 0


def test_each_device_of_a_slice_rings_its_own_arbiter(tmp_path: Path) -> None:
    two = Machine.create([PROFILES["h100-80g"]] * 2, tmp_path / "two", driver_version())
    limits = tuple(DeviceLimit(each.uuid, GIB, core_percent=50) for each in two.devices)
    create(tmp_path / "slice", ContainerLimits("tenant", Family.VGPU, limits))
    part = Slice(two, tmp_path / "slice")
    with Grants(tmp_path / "slice", 0) as first, Grants(tmp_path / "slice", 1) as second:
        for grants in (first, second):
            grants.publish("windows")
        on_second = busy(MS).replace("open_context()", "open_context(1)")
        part.start(PRELUDE + on_second)
        time.sleep(SETTLE_SECONDS)
        waiting_since_ns = now_ns()
        time.sleep(SETTLE_SECONDS)
        part.close()

        assert second.heard() > 50
        assert second.told().demand_ns > waiting_since_ns
        assert first.heard() == 0
