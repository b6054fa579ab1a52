"""What the timeline makes of a calibration, on a device made by hand: every figure is exact."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from libvgpu.sim.calibration import find_calibration
from support import ROOT, Compile
from support.ended import printed

US, MS = 1_000, 1_000_000
H100 = find_calibration("h100")
WHOLE = 6400  # SIM_PARTS


@dataclass
class Scenario:
    """What a device is given; times in ns."""

    program: Path
    lines: list[str] = field(default_factory=list)

    def client(self, slot: int, percentage: int = 0) -> None:
        self.lines.append(f"client {slot} {percentage}")

    def work(
        self,
        slot: int,
        cost_ns: int,
        count: int = 1,
        *,
        at_ns: int = 1,
        lane: int = 0,
        parts: int = 0,
        kind: str = "kernel",
        overlap_ns: int = 0,
    ) -> None:
        numbers = f"{at_ns} {cost_ns} {parts} {count} {overlap_ns}"
        self.lines.append(f"operation {slot} {lane} {kind} {numbers}")

    def until(self, end_ns: int) -> "Outcome":
        text = "\n".join([*self.lines, f"until {end_ns}"])
        said = printed(self.program, told=text)
        outcome = Outcome()
        for numbers in ([int(word) for word in line.split()] for line in said.splitlines()):
            if len(numbers) == 2:
                outcome.busy_ns[numbers[0]] = numbers[1]
            else:
                outcome.done_ns.setdefault((numbers[0], numbers[1]), []).append(numbers[3])
        return outcome


@dataclass
class Outcome:
    """Device time of each client, and when the operations of each of its lanes were done."""

    busy_ns: dict[int, int] = field(default_factory=dict)
    done_ns: dict[tuple[int, int], list[int]] = field(default_factory=dict)


@pytest.fixture
def free(compile_program: Compile) -> Scenario:
    """A device whose calibration holds nothing up; turns of 2091 us."""
    program = compile_program(
        "sim_timeline.c",
        str(ROOT / "libvgpu/sim/core/timeline.c"),
        flags=(f"-I{ROOT}/libvgpu/sim/core",),
    )
    return Scenario(program, [f"calibrate {H100.slice_ns} 0 0 0 0 0 0"])


@pytest.fixture
def scenario(free: Scenario) -> Scenario:
    """A device calibrated as an H100, but for what the calls take."""
    figures = (
        H100.slice_ns,
        H100.switch_ns,
        H100.preempt_ns,
        H100.idle_switch_ns,
        H100.latency_ns,
        H100.event_latency_ns,
        H100.event_ns,
    )
    return Scenario(free.program, [f"calibrate {' '.join(map(str, figures))}"])


def test_two_queues_get_what_an_h100_leaves_of_turns(scenario: Scenario) -> None:
    for slot in (0, 1):
        scenario.client(slot)
        scenario.work(slot, 2 * MS, 1000)

    busy = scenario.until(1000 * MS).busy_ns

    assert [busy[slot] / (10 * MS) for slot in (0, 1)] == pytest.approx([45.0, 45.0], abs=0.2)


@pytest.mark.parametrize("lanes", [1, 2, 3])
@pytest.mark.parametrize("parts", [0, 1600, 3200])  # of 6400; 0: all of them
def test_a_turn_that_ends_within_kernels_costs_by_what_they_fill(
    scenario: Scenario, parts: int, lanes: int
) -> None:
    for slot in (0, 1):
        scenario.client(slot)
        for lane in range(lanes):
            scenario.work(slot, 20 * MS, 50, lane=lane, parts=parts)

    busy = scenario.until(1000 * MS).busy_ns

    filled = min(1.0, lanes * (parts or 6400) / 6400)
    turn_ns = H100.slice_ns + H100.switch_ns + H100.preempt_ns * filled
    expected = 100 * H100.slice_ns / turn_ns
    assert sum(busy.values()) / (10 * MS) == pytest.approx(expected, abs=0.2)


def test_a_turn_that_ends_between_kernels_costs_less(scenario: Scenario) -> None:
    for slot in (0, 1):
        scenario.client(slot)
        scenario.work(slot, H100.slice_ns // 3, 1000)

    busy = scenario.until(1000 * MS).busy_ns

    assert sum(busy.values()) / (10 * MS) == pytest.approx(93.3, abs=0.2)


def test_a_process_that_has_run_dry_gives_way_at_once(scenario: Scenario) -> None:
    for slot, at_ns in ((0, 1), (1, 10 * US), (0, 100 * US)):
        scenario.client(slot)
        scenario.work(slot, 50 * US, at_ns=at_ns)

    done = scenario.until(10 * MS).done_ns

    first_ns = 1 + H100.latency_ns + 50 * US
    second_ns = first_ns + H100.idle_switch_ns + 50 * US
    assert done == {
        (0, 0): [first_ns, second_ns + H100.idle_switch_ns + 50 * US],
        (1, 0): [second_ns],
    }


def test_nobody_pays_for_a_change_alone(scenario: Scenario) -> None:
    scenario.client(0)
    scenario.work(0, 3 * MS, 4)

    assert scenario.until(100 * MS).done_ns[0, 0][-1] == 1 + H100.latency_ns + 12 * MS


def test_an_event_reaches_an_idle_device_before_a_kernel_would(scenario: Scenario) -> None:
    scenario.client(0)
    scenario.work(0, H100.event_ns, at_ns=100 * US, kind="event")
    scenario.work(0, 10 * US, at_ns=101 * US)

    recorded_ns = 100 * US + H100.event_latency_ns + H100.event_ns
    launched_ns = 101 * US + H100.latency_ns
    assert recorded_ns < launched_ns
    assert scenario.until(MS).done_ns[0, 0] == [recorded_ns, launched_ns + 10 * US]


def test_an_idle_device_begins_later_and_a_busy_one_at_once(scenario: Scenario) -> None:
    scenario.client(0)
    scenario.work(0, 10 * US, at_ns=100 * US)
    scenario.work(0, 10 * US, at_ns=101 * US)
    scenario.work(0, 10 * US, at_ns=200 * US)

    begins_ns = 100 * US + H100.latency_ns
    assert scenario.until(MS).done_ns[0, 0] == [
        begins_ns + 10 * US,
        begins_ns + 20 * US,
        200 * US + H100.latency_ns + 10 * US,
    ]


def test_a_dependent_launch_begins_while_the_one_before_it_ends(scenario: Scenario) -> None:
    scenario.client(0)
    scenario.work(0, 10 * US, at_ns=100 * US)
    for at_ns in (101 * US, 121 * US - H100.latency_ns, 200 * US):
        scenario.work(0, 10 * US, at_ns=at_ns, overlap_ns=2 * US)

    outcome = scenario.until(MS)

    # The first is there all the while, the second for the last 1.3 us. The third is late.
    first_ns = 100 * US + H100.latency_ns + 10 * US
    second_ns = first_ns + 8 * US
    third_ns = 121 * US + 10 * US
    last_ns = 200 * US + H100.latency_ns + 10 * US
    assert outcome.done_ns[0, 0] == [first_ns, second_ns, third_ns, last_ns]
    assert outcome.busy_ns[0] == third_ns - (first_ns - 10 * US) + 10 * US


def test_an_event_takes_time_but_no_part_of_the_device(free: Scenario) -> None:
    free.client(0)
    free.work(0, 10 * US)
    free.work(0, H100.event_ns, kind="event")
    free.work(0, 10 * US)
    free.work(0, 30 * US, lane=2)

    outcome = free.until(MS)

    # 10 us are had by halves, then the event leaves all to the other lane.
    first_ns = 1 + 20 * US
    event_ns = first_ns + H100.event_ns
    assert outcome.done_ns[0, 0][:2] == [first_ns, event_ns]
    assert outcome.done_ns[0, 0][2] == event_ns + 20 * US
    assert outcome.busy_ns[0] == 50 * US


def test_an_event_waits_for_the_turn_of_its_process(free: Scenario) -> None:
    for slot in (0, 1):
        free.client(slot)
    free.work(0, H100.slice_ns)
    free.work(1, H100.event_ns, kind="event")
    free.work(1, MS)

    assert free.until(10 * MS).done_ns[1, 0][0] == 1 + H100.slice_ns + H100.event_ns


@pytest.mark.parametrize(
    ("parts", "rounds"), [(WHOLE // 8, 1), (WHOLE // 4, 1), (WHOLE // 2, 2), (WHOLE, 4), (0, 4)]
)
def test_kernels_run_side_by_side_as_they_fit(free: Scenario, parts: int, rounds: int) -> None:
    free.client(0)
    for lane in range(2, 6):
        free.work(0, MS, 10, lane=lane, parts=parts)

    outcome = free.until(100 * MS)

    wanted_ns = 1 + 10 * rounds * MS
    assert {done[-1] for done in outcome.done_ns.values()} == {wanted_ns}
    assert outcome.busy_ns[0] == pytest.approx(wanted_ns, abs=100)


def test_a_small_kernel_leaves_room_for_a_large_one(free: Scenario) -> None:
    free.client(0)
    free.work(0, MS, lane=2, parts=WHOLE // 4)
    free.work(0, MS, lane=3, parts=WHOLE * 3 // 4)

    done = free.until(100 * MS).done_ns
    assert [done[0, 2], done[0, 3]] == [[1 + MS], [1 + MS]]


@pytest.mark.parametrize(
    ("percentages", "parts", "rounds"),
    [
        ((100, 100), WHOLE // 2, (1, 1)),
        ((100, 100), WHOLE, (2, 2)),
        ((50, 50), WHOLE, (2, 2)),
        ((25, 75), WHOLE, (4, 4 / 3)),
        ((25, 25), WHOLE // 4, (1, 1)),
        ((33, 33), WHOLE, (100 / 33, 100 / 33)),
    ],
)
def test_clients_of_mps_run_side_by_side(
    free: Scenario, percentages: tuple[int, int], parts: int, rounds: tuple[float, float]
) -> None:
    for slot, percentage in enumerate(percentages):
        free.client(slot, percentage)
        free.work(slot, MS, 20, parts=parts)

    done = free.until(200 * MS).done_ns

    for slot, factor in enumerate(rounds):
        assert done[slot, 0][9] == pytest.approx(1 + 10 * factor * MS, abs=200)
