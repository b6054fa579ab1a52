"""Tenants that ask whether their work is done, on a GPU that is not enough for them."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from libvgpu._native import lib
from libvgpu.limits import ComputeMode
from support.shim.crowd import MS, Crowd, split
from support.shim.grants import grant_mode
from support.sim.measured import measured_machine

SETTLE_SECONDS = 0.7
POINTS = 0.8  # who asks finds out late
WINDOWS, SHARED = int(lib.VGPU_GRANT_WINDOWS), int(lib.VGPU_GRANT_SHARED)

pytestmark = pytest.mark.virtual

#: How a program waits for what it has launched.
WAYS = {
    "stream": "while int(cuda.cuStreamQuery(spinner.stream)[0]): time.sleep(2e-5)",
    "event": "event = globals().get('event') or check(cuda.cuEventCreate(0))\n"
    "    check(cuda.cuEventRecord(event, spinner.stream))\n"
    "    while int(cuda.cuEventQuery(event)[0]): time.sleep(2e-5)",
    "wait": "spinner.wait()",
}
#: Until its test says otherwise, a program does little.
LITTLE = "\n    if not os.path.exists({told!r}): time.sleep(0.01)"


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    machine = measured_machine(tmp_path)
    made = Crowd(machine, tmp_path)
    yield made
    made.close()
    machine.remove()


def modes(crowd: Crowd) -> list[int]:
    return [grant_mode(part.directory) for part in crowd.parts]


@pytest.mark.parametrize("way", WAYS)
def test_who_asks_in_vain_gets_his_share_as_who_waits(
    crowd: Crowd, tmp_path: Path, way: str
) -> None:
    told = tmp_path / "told"
    for percent in (30, 70):
        after = WAYS[way] + LITTLE.format(told=str(told))
        crowd.join(percent, ComputeMode.ELASTIC, MS, after)
    time.sleep(SETTLE_SECONDS)
    assert modes(crowd) == [SHARED, SHARED]

    told.touch()
    time.sleep(SETTLE_SECONDS)
    shares = crowd.shares()

    assert modes(crowd) == [WINDOWS, WINDOWS]
    assert split(shares) == pytest.approx([30, 70], abs=POINTS)
    assert sum(shares) > 94


def test_who_asks_once_after_each_launch_does_not_wait(crowd: Crowd) -> None:
    """As an allocator does that looks for what it may use again."""
    for percent in (30, 70):
        crowd.join(
            percent,
            ComputeMode.ELASTIC,
            MS // 5,
            "cuda.cuStreamQuery(spinner.stream); time.sleep(7e-4)",
        )
    time.sleep(SETTLE_SECONDS)

    assert modes(crowd) == [SHARED, SHARED]
