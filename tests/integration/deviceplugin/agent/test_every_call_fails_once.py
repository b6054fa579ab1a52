"""Each I/O call of an agent in a world fails once: nothing is lost, and a message says which.

The long form has every call fail in each way; the gate has some of them, others with each commit.
"""

import errno
import random
from collections.abc import Iterator

import pytest

from support import IS_LONG
from support.seeds import how_to_repeat, seeds
from support.world import failing_scenarios
from support.world.failing_scenarios import SCENARIOS
from support.world.lives import small_shim
from support.world.one_failure import ERRORS, places

TRIED = 14


@pytest.fixture(autouse=True)
def shim(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with small_shim(monkeypatch):
        yield


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_is_lost_and_the_failed_call_is_named(
    name: str, request: pytest.FixtureRequest
) -> None:
    seed = seeds(0, 1)[1][0]
    scenario = SCENARIOS[name]
    failing_scenarios.live(scenario)  # a process reads some files once only
    calls = places(failing_scenarios.live(scenario).calls)
    ways = [(call, error) for call in calls for error in ERRORS]
    assert len(ways) > 5 * TRIED
    for call, error in ways if IS_LONG else random.Random(seed).sample(ways, TRIED):
        what = f"{errno.errorcode[error]} of {call.what} {call.where} at {call.code}"
        try:
            lived = failing_scenarios.live(scenario, call, error)
            assert lived.failed is not None, "it did not fail"
            lived.check_told(error)
        except Exception as problem:
            again = how_to_repeat(seed, request.node.nodeid)
            raise AssertionError(f"{what}: {problem}\n{again}") from problem
