"""Every order of steps, crashes and limit changes, in a model of the ledger.

Short: the quick scenarios, which show every planted fault but three; those show in the first states
of a scenario that is searched to its end in the long form only (``VGPU_LONG=1``, and ``make
model``). A search is bounded by the states it may find, never by time.
"""

import re
import subprocess
from pathlib import Path

import pytest

from support import IS_LONG, Compile

SCENARIOS, LEAST_STATES = ("all", 60_000_000) if IS_LONG else ("quick", 800_000)
PARTS = tuple(
    f"tests/model/{name}.c" for name in ("pieces", "search", "seen_set", "steps", "world")
)

pytestmark = pytest.mark.process

# Each fault with a scenario that shows it and what it then says.
FAULTS = {
    "no-second-limit": ("lowered", "granted over the limit"),
    "reap-any-gen": ("reused", "a slot does not hold what its user was granted"),
    "no-parity": ("reused", "refused what fitted all the time"),
    "no-second-gen": ("reused", "refused what fitted all the time"),
    "no-count": ("lowered", "refused what fitted all the time"),
    "undo-refuses": ("lowered", "refused what fitted all the time"),
    "no-help": ("raised", "the total is not the sum of the slots"),
    "life-first": ("reused", "refused what fitted all the time"),
    "join-same-gen": ("shared", "a piece that somebody holds is not charged"),
    "join-same-total": ("shared", "a piece that somebody holds is not charged"),
    "no-look": ("kept", "what children keep is not charged"),
}


@pytest.fixture
def model(compile_program: Compile) -> Path:
    return compile_program("../model/ledger_model.c", *PARTS)


@pytest.mark.timeout(7200)  # the long form takes minutes; only what hangs reaches it
def test_nothing_wrong_is_reached_by_any_order_of_steps_crashes_and_limits(model: Path) -> None:
    done = subprocess.run([model, SCENARIOS], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout[-4000:]
    states = [int(count) for count in re.findall(r"(\d+) states", done.stdout)]
    assert sum(states) > LEAST_STATES


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(model: Path, fault: str) -> None:
    scenario, sentence = FAULTS[fault]

    done = subprocess.run([model, scenario, fault], capture_output=True, text=True, check=False)

    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].endswith(sentence)


@pytest.mark.xfail(
    strict=True,
    reason="who looks for a piece that was just given back holds its life lock for a moment: "
    "a refusal that read the total before takes those bytes for held",
)
@pytest.mark.parametrize("scenario", ["shared-reserve", "shared-refuse"])
def test_who_joins_a_piece_that_has_ended_causes_no_false_refusal(
    model: Path, scenario: str
) -> None:
    done = subprocess.run([model, scenario], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout.splitlines()[-1]
