"""The arbiter's thread, on real files: windows, wake-ups, and tenants that do it harm."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from libvgpu._native import lib
from libvgpu.arbitration import Arbiter
from libvgpu.errors import RegionError
from libvgpu.limits import ComputeMode, ContainerLimits, DeviceLimit, Family
from libvgpu.region import create, read_limits, write_limits
from libvgpu.sharing_mode import Mode
from support import ROOT
from support.lines import expect
from support.shim.ringers import WEIGHT, Ringer, make_tenant
from support.waiting import PATIENCE_S, wait_until

NONE, FREE, WINDOWS = lib.VGPU_GRANT_NONE, lib.VGPU_GRANT_FREE, lib.VGPU_GRANT_WINDOWS


@pytest.fixture
def arbiter() -> Iterator[Arbiter]:
    with Arbiter() as started:
        yield started


@pytest.fixture
def pair(arbiter: Arbiter, tmp_path: Path) -> Iterator[tuple[Ringer, Ringer]]:
    """Two tenants of equal weight."""
    for name in ("a", "b"):
        arbiter.add(make_tenant(tmp_path / name), 0)
    with Ringer(tmp_path / "a") as a, Ringer(tmp_path / "b") as b:
        yield a, b


def contend(pair: tuple[Ringer, ...], seconds: float) -> list[set[int]]:
    """Has tenants want the GPU all the time; returns the windows that each was in."""
    windows: list[set[int]] = [set() for _ in pair]
    end_at = time.monotonic() + seconds
    while time.monotonic() < end_at:
        for tenant, seen in zip(pair, windows, strict=True):
            tenant.demand()
            grant = tenant.grant()
            if grant.mode == WINDOWS and grant.start_ns <= time.monotonic_ns() < grant.end_ns:
                seen.add(grant.window)
        time.sleep(0.0005)
    return windows


@pytest.mark.virtual
def test_two_that_contend_get_windows_in_turn(
    arbiter: Arbiter, pair: tuple[Ringer, Ringer]
) -> None:
    windows = contend(pair, 0.5)

    assert all(len(seen) >= 5 for seen in windows), windows
    counters = arbiter.counters()
    assert counters.mode is Mode.WINDOWS
    assert counters.windows >= sum(len(seen) for seen in windows)
    occupied = sum(tenant.occupancy_ns for tenant in counters.tenants.values())
    assert 0.3e9 <= occupied <= 0.6e9
    assert 0.4e9 <= counters.mode_ns[Mode.WINDOWS] <= 0.6e9
    assert counters.mode_ns[Mode.SHARED] == 0
    assert [counters.tenants[t.directory].wanted_part for t in pair] == [1, 1]
    assert {read_limits(t.directory).modes for t in pair} == {(Mode.WINDOWS,)}


@pytest.mark.virtual
def test_a_weight_that_changes_in_limits_holds_from_the_next_window(
    arbiter: Arbiter, pair: tuple[Ringer, Ringer]
) -> None:
    def occupied(seconds: float) -> list[int]:
        before = arbiter.counters().tenants
        contend(pair, seconds)
        after = arbiter.counters().tenants
        return [after[t.directory].occupancy_ns - before[t.directory].occupancy_ns for t in pair]

    contend(pair, 0.1)
    equal = occupied(0.4)
    heavy = DeviceLimit("GPU-0", 1 << 30, weight=3 * WEIGHT)
    write_limits(pair[0].directory, ContainerLimits("a", Family.VGPU, (heavy,)))
    contend(pair, 0.05)
    uneven = occupied(0.4)

    assert equal[0] / equal[1] == pytest.approx(1, rel=0.2)
    assert uneven[0] / uneven[1] == pytest.approx(3, rel=0.25)


@pytest.mark.virtual
def test_windows_do_not_overlap(pair: tuple[Ringer, Ringer]) -> None:
    contend(pair, 0.05)
    checked = 0
    for _ in range(100):
        contend(pair, 0.002)
        before = pair[0].grant()
        other = pair[1].grant()
        time.sleep(0.0002)  # both grants of one turn are there by now
        if before[0] != pair[0].grant()[0] or other[0] != pair[1].grant()[0]:
            continue
        checked += 1
        assert before.end_ns <= other.start_ns or other.end_ns <= before.start_ns
    assert checked > 20


@pytest.mark.virtual
def test_the_beat_is_fresh_while_windows_are_given(pair: tuple[Ringer, Ringer]) -> None:
    contend(pair, 0.05)
    ages_ns = []
    for _ in range(50):
        contend(pair, 0.002)
        ages_ns += [time.monotonic_ns() - tenant.grant().beat_ns for tenant in pair]

    assert sorted(ages_ns)[len(ages_ns) // 2] < 10_000_000


def test_a_new_grant_wakes_who_waits_on_it(pair: tuple[Ringer, Ringer]) -> None:
    woken = None
    for _ in range(20):
        wait_until(lambda: pair[0].grant().mode == FREE, "the first grant")
        before = pair[0].grant()
        with ThreadPoolExecutor(1) as threads:
            asleep = threads.submit(pair[0].sleep_on, before, PATIENCE_S)
            time.sleep(0.1)
            for tenant in pair:
                tenant.demand()
            woken = asleep.result()
        assert pair[0].grant().number != before.number
        if woken is not None:  # else the thread came to its sleep too late
            break

    assert woken


@pytest.mark.virtual
def test_one_alone_is_free_and_looked_at_ten_times_a_second(
    arbiter: Arbiter, pair: tuple[Ringer, Ringer]
) -> None:
    pair[0].row.busy_until_ns = time.monotonic_ns() + 5_000_000_000
    pair[0].demand()
    time.sleep(0.1)
    before = arbiter.counters().wakes

    time.sleep(1)

    assert 5 <= arbiter.counters().wakes - before <= 20
    assert [tenant.grant().mode for tenant in pair] == [FREE, FREE]


@pytest.mark.virtual
def test_an_idle_gpu_wakes_nobody(arbiter: Arbiter, pair: tuple[Ringer, Ringer]) -> None:
    contend(pair, 0.05)
    time.sleep(0.2)
    before = arbiter.counters().wakes

    time.sleep(0.5)

    assert arbiter.counters().wakes == before
    assert [tenant.grant().mode for tenant in pair] == [FREE, FREE]


def test_without_an_arbiter_a_ring_fails_and_the_own_cap_holds(tmp_path: Path) -> None:
    make_tenant(tmp_path / "a")
    with Arbiter() as arbiter, Ringer(tmp_path / "a") as tenant:
        arbiter.add(tmp_path / "a", 0)
        tenant.demand()
        wait_until(lambda: tenant.grant().mode == FREE, "the first grant")
        tenant.close_ring()

        arbiter.stop()

        assert tenant.grant().mode == NONE
        with pytest.raises(OSError, match=os.strerror(errno.ENXIO)):
            tenant.ring()


@pytest.mark.parametrize(("percent", "renewed"), [(100, 1), (30, 0)])
def test_one_without_a_cap_is_made_to_look_at_its_first_grant(
    arbiter: Arbiter, tmp_path: Path, percent: int, renewed: int
) -> None:
    device = DeviceLimit("GPU-0", 1 << 30, core_percent=percent, weight=percent)
    create(tmp_path / "a", ContainerLimits("a", Family.VGPU, (device,)))
    before = read_limits(tmp_path / "a")
    with Ringer(tmp_path / "a") as tenant:
        arbiter.add(tmp_path / "a", 0)

        after = read_limits(tmp_path / "a")
        assert tenant.grant().mode == FREE  # before `limits` was renewed: it looks but once
    assert after.limits == before.limits
    assert after.generation - before.generation == renewed


def test_one_that_is_removed_keeps_to_its_own_cap(
    arbiter: Arbiter, pair: tuple[Ringer, Ringer]
) -> None:
    contend(pair, 0.05)

    arbiter.remove(pair[0].directory)

    assert pair[0].grant().mode == NONE
    pair[0].close_ring()
    with pytest.raises(OSError, match=os.strerror(errno.ENXIO)):
        pair[0].ring()
    pair[1].row.busy_until_ns = time.monotonic_ns() + 5_000_000_000
    wait_until(lambda: pair[1].grant().mode == FREE, "a free GPU for the one that is left")
    assert set(arbiter.counters().tenants) == {pair[1].directory}


def test_when_the_arbiter_is_killed_its_beat_gets_old(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_tenant(tmp_path / name)
    program = (
        "import sys; from pathlib import Path; from libvgpu.arbitration import Arbiter\n"
        "arbiter = Arbiter()\n"
        "for name in sys.argv[1:]: arbiter.add(Path(name), 0)\n"
        "print('ready', flush=True); sys.stdin.read()"
    )
    names = [str(tmp_path / name) for name in ("a", "b")]
    with (
        subprocess.Popen(
            [sys.executable, "-c", program, *names],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
        Ringer(tmp_path / "a") as a,
        Ringer(tmp_path / "b") as b,
    ):
        expect(process)
        wait_until(lambda: contend((a, b), 0.1) and a.grant().mode == WINDOWS, "they take turns")
        process.send_signal(signal.SIGKILL)
        process.wait()
        time.sleep(0.03)

        grant = a.grant()
        assert grant.mode == WINDOWS
        assert time.monotonic_ns() - grant.beat_ns > 20_000_000
        for tenant in (a, b):
            tenant.close_ring()
            with pytest.raises(OSError, match=os.strerror(errno.ENXIO)):
                tenant.ring()

        windows_before = a.grant().window
        with Arbiter() as successor:
            for name in ("a", "b"):
                successor.add(tmp_path / name, 0)
            windows = contend((a, b), 0.2)
        assert min(windows[0]) > windows_before  # its old yields mean nothing any more


def test_an_arbiter_that_died_while_it_published_is_followed(tmp_path: Path) -> None:
    path = make_tenant(tmp_path / "a") / "limits"
    path.chmod(0o644)
    with open(path, "r+b") as file:
        file.seek(256)  # the grant's number
        file.write((41).to_bytes(8, "little"))

    with Arbiter() as arbiter, Ringer(tmp_path / "a") as tenant:
        arbiter.add(tmp_path / "a", 0)
        tenant.demand()

        wait_until(lambda: tenant.grant().mode == FREE, "the first grant")
        assert tenant.grant().number == 42


@pytest.mark.timing
def test_a_flood_of_rings_neither_starves_others_nor_burns_a_core(
    arbiter: Arbiter, pair: tuple[Ringer, Ringer], tmp_path: Path
) -> None:
    arbiter.add(make_tenant(tmp_path / "flood"), 0)
    flags = os.O_WRONLY | os.O_NONBLOCK
    descriptor = os.open(tmp_path / "flood" / "ring", flags)
    before = arbiter.counters().wakes
    begun_at = time.monotonic()
    windows: list[set[int]] = [set(), set()]
    try:
        while time.monotonic() < begun_at + 0.5:
            for size in (1, 1, 1, 1, 65536):
                with suppress(BlockingIOError):
                    os.write(descriptor, b"!" * size)
            for seen, new in zip(windows, contend(pair, 0.0002), strict=True):
                seen |= new
    finally:
        os.close(descriptor)

    assert all(len(seen) >= 5 for seen in windows), windows
    wakes_a_second = (arbiter.counters().wakes - before) / (time.monotonic() - begun_at)
    assert wakes_a_second < 1000 * 8 + 4000


@pytest.mark.timing
def test_an_idle_flood_is_looked_at_once_a_millisecond(arbiter: Arbiter, tmp_path: Path) -> None:
    arbiter.add(make_tenant(tmp_path / "flood"), 0)
    descriptor = os.open(tmp_path / "flood" / "ring", os.O_WRONLY | os.O_NONBLOCK)
    before, begun_at = arbiter.counters().wakes, time.monotonic()
    while time.monotonic() < begun_at + 0.3:
        with suppress(BlockingIOError):
            os.write(descriptor, b"!" * 65536)
    wakes = arbiter.counters().wakes - before
    os.close(descriptor)

    assert 50 <= wakes <= 1.3 * 1000 * (time.monotonic() - begun_at)


@pytest.mark.timing
def test_writers_that_come_and_go_cause_no_storm(arbiter: Arbiter, tmp_path: Path) -> None:
    arbiter.add(make_tenant(tmp_path / "a"), 0)
    with Ringer(tmp_path / "a") as tenant:
        for _ in range(20):
            tenant.ring()
            tenant.close_ring()
        time.sleep(0.05)
        before = arbiter.counters().wakes
        time.sleep(0.3)
        assert arbiter.counters().wakes == before  # the end of the file is not reported for ever

        tenant.demand()
        wait_until(lambda: arbiter.counters().wakes > before, "a ring after the others have gone")


@pytest.mark.parametrize("harm", ["cut", "grown", "garbage"])
def test_a_tenant_that_ruins_its_usage_harms_itself_alone(
    arbiter: Arbiter, pair: tuple[Ringer, Ringer], tmp_path: Path, harm: str
) -> None:
    arbiter.add(make_tenant(tmp_path / "bad"), 0)
    with Ringer(tmp_path / "bad") as bad:
        bad.ring()
    usage = tmp_path / "bad" / "usage"
    with open(usage, "r+b") as file:
        if harm == "cut":
            file.truncate(10)
        elif harm == "grown":
            file.truncate(1 << 30)
        else:
            file.seek(256)
            file.write(b"\xff" * 256)

    windows = contend(pair, 0.4)

    assert all(len(seen) >= 5 for seen in windows), windows


def test_a_compute_mode_of_off_holds_at_once(arbiter: Arbiter, pair: tuple[Ringer, Ringer]) -> None:
    contend(pair, 0.05)
    off = DeviceLimit("GPU-0", 1 << 30, compute_mode=ComputeMode.OFF)
    write_limits(pair[0].directory, ContainerLimits("a", Family.VGPU, (off,)))

    contend(pair, 0.05)

    assert pair[0].grant().mode == FREE


def test_the_grant_of_each_device_is_its_own(arbiter: Arbiter, tmp_path: Path) -> None:
    make_tenant(tmp_path / "a", device_count=3)
    arbiter.add(tmp_path / "a", 1)
    with Ringer(tmp_path / "a", 1) as arbitrated, Ringer(tmp_path / "a", 2) as other:
        wait_until(lambda: arbitrated.grant().mode == FREE, "the first grant")
        assert other.grant().mode == NONE


def test_what_cannot_be_a_tenant_is_refused(arbiter: Arbiter, tmp_path: Path) -> None:
    good = make_tenant(tmp_path / "good")
    arbiter.add(good, 0)
    with pytest.raises(RegionError, match="already"):
        arbiter.add(good, 0)
    ringless = make_tenant(tmp_path / "ringless")
    (ringless / "ring").unlink()
    with pytest.raises(RegionError, match="ring cannot be opened"):
        arbiter.add(ringless, 0)
    (ringless / "ring").write_bytes(b"no FIFO")
    with pytest.raises(RegionError, match="is no FIFO"):
        arbiter.add(ringless, 0)
    with pytest.raises(RegionError, match="no room for that device"):
        arbiter.add(make_tenant(tmp_path / "one"), 1)
    with pytest.raises(RegionError, match="64 cannot be a device index"):
        arbiter.add(tmp_path / "one", 64)
    damaged = make_tenant(tmp_path / "damaged")
    (damaged / "usage").write_bytes(b"\0" * 4096)
    with pytest.raises(RegionError, match="damaged"):
        arbiter.add(damaged, 0)
    assert set(arbiter.counters().tenants) == {good}


def test_what_is_refused_leaves_no_descriptor_open(arbiter: Arbiter, tmp_path: Path) -> None:
    make_tenant(tmp_path / "a")
    before = len(os.listdir("/proc/self/fd"))

    for _ in range(3):
        with pytest.raises(RegionError):
            arbiter.add(tmp_path / "a", 7)
        arbiter.add(tmp_path / "a", 0)
        arbiter.remove(tmp_path / "a")

    assert len(os.listdir("/proc/self/fd")) == before


def test_a_stopped_arbiter_says_so() -> None:
    arbiter = Arbiter()
    arbiter.stop()
    arbiter.stop()
    with pytest.raises(RegionError, match="has been stopped"):
        arbiter.counters()
