"""Kernels that need memory bandwidth, and the clock after a pause, on a device made by hand."""

from pathlib import Path

import pytest

from support import ROOT, Compile
from support.ended import printed

MS = 1_000_000
QUARTER = 1600  # of SIM_PARTS


@pytest.fixture
def device(compile_program: Compile) -> Path:
    return compile_program(
        "sim_timeline.c",
        str(ROOT / "libvgpu/sim/core/timeline.c"),
        flags=(f"-I{ROOT}/libvgpu/sim/core",),
    )


def ends_ms(device: Path, *lines: str, until_ms: int = 1000) -> tuple[list[float], list[float]]:
    """Returns when operations were done, and what each client had of the device."""
    text = "\n".join(["calibrate 2091000 0 0 0 0 0 0", *lines, f"until {until_ms * MS}"])
    rows = [
        [int(word) for word in line.split()] for line in printed(device, told=text).splitlines()
    ]
    done = [row[3] / MS for row in rows if len(row) == 4]
    return done, [row[1] / MS for row in rows if len(row) == 2]


def kernel(slot: int, lane: int, cost_ms: float, parts: int = QUARTER, at_ms: float = 0) -> str:
    return f"operation {slot} {lane} kernel {int(at_ms * MS) + 1} {int(cost_ms * MS)} {parts} 1 0"


def test_kernels_whose_needs_fit_do_not_slow_each_other(device: Path) -> None:
    done, _ = ends_ms(device, "client 0 0", "dram 50", kernel(0, 0, 10), kernel(0, 1, 10))

    assert done == pytest.approx([10, 10], abs=0.001)


def test_above_the_bandwidth_those_that_need_it_are_slower(device: Path) -> None:
    done, busy = ends_ms(
        device,
        "client 0 0",
        "dram 75",
        kernel(0, 0, 10),
        kernel(0, 1, 10),
        "dram 0",
        kernel(0, 2, 10),
    )

    assert done == pytest.approx([15, 15, 10], abs=0.001)
    assert busy == pytest.approx([15], abs=0.001)  # they are one process


def test_clients_of_one_mps_server_share_it_too(device: Path) -> None:
    done, busy = ends_ms(
        device,
        "client 0 100",
        "client 1 100",
        "dram 100",
        kernel(0, 0, 10, 3200),
        kernel(1, 0, 10, 3200),
    )

    assert done == pytest.approx([20, 20], abs=0.001)
    assert busy[0] == busy[1]


def test_one_after_another_they_have_all_of_it(device: Path) -> None:
    done, _ = ends_ms(device, "client 0 0", "dram 100", kernel(0, 0, 10), kernel(0, 0, 10))

    assert done == pytest.approx([10, 20], abs=0.001)


@pytest.mark.parametrize(
    ("after_ms", "last_ms"), [(0.5, 14), (2, 13.5)], ids=["long enough", "too short"]
)
def test_after_a_pause_the_clock_is_lower_for_a_while(
    device: Path, after_ms: float, last_ms: float
) -> None:
    """Kernels of 1 ms, at half of the speed for 1 ms; the pause between them takes 1 ms."""
    done, busy = ends_ms(
        device,
        f"varied {int(after_ms * MS)} {MS} 50",
        "client 0 0",
        kernel(0, 0, 1, 0, at_ms=10),
        kernel(0, 0, 1, 0, at_ms=12.5),
    )

    assert done == pytest.approx([11.5, last_ms], abs=0.001)
    assert busy == pytest.approx([last_ms - 11], abs=0.001)
