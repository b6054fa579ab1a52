"""Debts of GPU time, from NVML's samples."""

from pathlib import Path

import pytest

from deviceplugin.watch.gpu_time import (
    LOOK_CLOSELY_S,
    MOST_OWED_S,
    Due,
    TimeDebts,
    TimeSample,
    due_part,
)
from libvgpu.arbitration import ArbiterCounters, TenantCounters
from libvgpu.limits import ComputeMode, DeviceLimit
from libvgpu.sharing_mode import Mode

GPU, HOLDERS, A = "GPU-0", {1: "a", 2: "b"}, ("a", "GPU-0")
PERIOD_S = 1 / 6
HERE = Path("here")


class Looks:
    """One GPU, looked at as the watch does."""

    def __init__(self, share_percent: int | None = 20) -> None:
        self.debts, self.now_s, self.sampled = TimeDebts(), 1000.0, 0
        own = None if share_percent is None else Due(share_percent / 100, True)
        self.due = {"a": own, "b": Due(0.5, True)}

    def run(self, seconds: float, percent: int, other_percent: int = 40) -> None:
        """Both have so much of the GPU for a while."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            count, samples = int(self.now_s / PERIOD_S), []
            if count > self.sampled:
                at_us, self.sampled = int(count * PERIOD_S * 1e6), count
                samples = [
                    TimeSample(pid, at_us, each)
                    for pid, each in ((1, percent), (2, other_percent))
                    if each
                ]
            self.debts.note(GPU, samples, HOLDERS, self.due, self.now_s)
            self.now_s += LOOK_CLOSELY_S if self.debts.is_suspect(GPU, self.now_s) else 1.05

    @property
    def owed_s(self) -> float:
        return self.debts.owed_s.get(A, 0)


@pytest.mark.parametrize("percent", [0, 19, 20, 21])
def test_who_keeps_to_his_share_owes_nothing(percent: int) -> None:
    looks = Looks()

    looks.run(120, percent)

    assert not looks.debts.withheld_s


@pytest.mark.parametrize(("percent", "is_gross"), [(22, False), (25, True), (40, True), (60, True)])
def test_who_takes_more_comes_to_owe_it(percent: int, is_gross: bool) -> None:
    looks = Looks()

    looks.run(30, percent)

    assert looks.debts.withheld_s[A] == pytest.approx(looks.owed_s, abs=0.1)
    assert (A in looks.debts.gross) == is_gross
    looks.run(2, percent)
    seconds = looks.owed_s
    looks.run(2, percent)
    assert looks.owed_s - seconds == pytest.approx(2 * (percent / 100 - 0.211), abs=0.1)


def test_a_debt_goes_at_the_rate_of_the_share() -> None:
    looks = Looks()
    looks.run(6, 60)
    owed_s = looks.owed_s
    assert owed_s > MOST_OWED_S
    assert not looks.debts.owes_most(A), "it is at it still"

    looks.run(1, 0)

    assert looks.owed_s == pytest.approx(owed_s - 0.211, abs=0.06)
    assert looks.debts.owes_most(A)
    looks.run(owed_s / 0.2, 0)
    assert not looks.debts.owed_s
    assert not looks.debts.withheld_s


def test_bursts_of_one_sample_are_no_debt() -> None:
    looks = Looks()
    for _ in range(60):
        looks.run(LOOK_CLOSELY_S / 2, 100, 0)
        looks.run(LOOK_CLOSELY_S * 5.5, 0, 60)

    assert not looks.debts.withheld_s


def test_what_was_not_looked_at_closely_is_not_counted() -> None:
    looks = Looks()

    looks.run(0.1, 100, 0)

    assert not looks.debts.owed_s
    assert looks.debts.is_suspect(GPU, looks.now_s)


def test_samples_that_are_no_shares_do_not_count() -> None:
    looks = Looks()

    looks.run(60, 80, 80)

    assert not looks.debts.owed_s


def test_who_has_all_of_it_owes_nothing() -> None:
    looks = Looks(None)

    looks.run(60, 60)

    assert not looks.debts.owed_s


def test_what_was_seen_without_turns_does_not_count_and_the_debt_goes_on_falling() -> None:
    looks = Looks()
    looks.run(6, 60)
    owed_s = looks.owed_s

    looks.due["a"] = Due(0.2, False)
    looks.run(1, 60)

    assert looks.owed_s == pytest.approx(owed_s - 0.211, abs=0.06)


def test_a_gpu_that_is_shared_no_more_is_forgotten() -> None:
    looks = Looks()
    looks.run(6, 60)

    looks.debts.keep([], [])

    assert looks.debts == TimeDebts()


def counted(turns_s: float, other_s: float, given_s: float) -> ArbiterCounters:
    mode_ns = dict.fromkeys(Mode, 0) | {
        Mode.WINDOWS: int(turns_s * 1e9),
        Mode.SHARED: int(other_s * 1e9),
    }
    tenant = TenantCounters(int(given_s * 1e9), 0, True, 1)
    return ArbiterCounters(0, 0, 0, 0, Mode.WINDOWS, mode_ns, {HERE: tenant})


@pytest.mark.parametrize(
    "limit",
    [
        DeviceLimit("G", 1, core_percent=100),
        DeviceLimit("G", 1, core_percent=20, mps_pipe_directory="/p"),
        DeviceLimit("G", 1, core_percent=20, compute_mode=ComputeMode.OFF),
    ],
    ids=["whole", "MPS", "off"],
)
def test_nothing_bounds_some(limit: DeviceLimit) -> None:
    assert due_part(limit, HERE, counted(1, 0, 0), counted(2, 0, 0)) is None


@pytest.mark.parametrize(
    ("mode", "now", "due"),
    [
        (ComputeMode.STRICT, counted(2, 0, 0.4), Due(0.2, True)),
        (ComputeMode.STRICT, counted(1.5, 0.5, 0.4), Due(0.2, False)),
        (ComputeMode.ELASTIC, counted(2, 0, 0.4), Due(0.4, True)),
        (ComputeMode.ELASTIC, counted(2, 0, 0.1), Due(0.2, True)),
        (ComputeMode.ELASTIC, counted(1.8, 0.2, 0.1), Due(0.2, False)),
        (ComputeMode.ELASTIC, counted(1, 0, 0), Due(0.2, False)),
        (ComputeMode.STRICT, None, Due(0.2, False)),
    ],
)
def test_what_is_due(mode: ComputeMode, now: ArbiterCounters | None, due: Due) -> None:
    limit = DeviceLimit("G", 1, core_percent=20, compute_mode=mode)

    assert due_part(limit, HERE, counted(1, 0, 0), now) == due
    assert due_part(limit, HERE, None, now) == Due(0.2, False)
