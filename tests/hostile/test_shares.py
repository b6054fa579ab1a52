"""What a tenant does to its ring changes no neighbour's share of the GPU (simulated figures).

In a time of its own, so the shares are right to the microsecond. The neighbours launch all the time
under the real arbiter, and so does the attacker, with a share of its own.
"""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from libvgpu.limits import ComputeMode
from libvgpu.sim import Machine
from support.hostile.attacks import RING_ROWS, Attack, rings
from support.shim.crowd import MS, Crowd

pytestmark = [pytest.mark.hostile, pytest.mark.virtual]

SETTLE_SECONDS, WINDOW_SECONDS = 1.5, 4.0
NEIGHBOURS, ATTACKER = [30, 50], 20
POINTS = 1.0
EVERY_S = 0.001


@pytest.fixture
def crowd(machine: Machine, tmp_path: Path) -> Iterator[Crowd]:
    made = Crowd(machine, tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("attack", RING_ROWS, ids=lambda attack: attack.name)
def test_neighbours_keep_their_shares(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch, attack: Attack
) -> None:
    *_, own = [crowd.join(part, ComputeMode.STRICT, MS) for part in (*NEIGHBOURS, ATTACKER)]
    time.sleep(SETTLE_SECONDS)
    in_peace = crowd.shares(WINDOW_SECONDS)
    monkeypatch.setattr(rings, "RING", str(own.directory / "ring"))
    is_over = threading.Event()

    def go_on() -> None:
        for _ in attack.steps():
            if is_over.is_set():
                return
            time.sleep(EVERY_S)

    attacker = threading.Thread(target=go_on)
    attacker.start()
    time.sleep(SETTLE_SECONDS)
    attacked = crowd.shares(WINDOW_SECONDS)
    is_over.set()
    attacker.join()

    print(in_peace, attacked)
    assert attacked == pytest.approx(in_peace, abs=POINTS)
