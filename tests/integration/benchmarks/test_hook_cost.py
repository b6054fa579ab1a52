"""What a hooked call may cost, in instructions: the gate that does not depend on the machine.

A locked instruction takes 40 ns on some machines, so these are counted besides.
"""

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from benchmarks import hooks
from benchmarks.nulldriver import build_client, build_driver
from libvgpu.artifacts import shim_path

# A launch of an uncapped and of a capped container within its budget; an allocation with its free.
# A small piece is looked for among the slabs, too.
MOST_INSTRUCTIONS = {"launch": {100: 8, 50: 75}, "alloc": {100: 1700}, "async": {100: 1400}}
LOCKED = {"launch": {100: 0, 50: 1}, "alloc": {100: 8}, "async": {100: 10}}

pytestmark = pytest.mark.skipif(
    shutil.which("valgrind") is None, reason="valgrind is not on PATH (apt install valgrind)"
)


Counts = Callable[[Path | None, hooks.Case, str], hooks.CallCost]


@pytest.fixture(scope="module")
def count(tmp_path_factory: pytest.TempPathFactory) -> Counts:
    """Counts the instructions of a call, without the shim once for all shares of a container."""
    driver = build_driver(tmp_path_factory.mktemp("bench"))
    bench = hooks.Bench(driver.parent, build_client("hooks_client", driver))

    @cache
    def bare(word: str, way: str) -> hooks.CallCost:
        return bench.count(None, hooks.Case(word, word, 100, 1), way)

    def count(preload: Path | None, case: hooks.Case, way: str) -> hooks.CallCost:
        return bench.count(preload, case, way) if preload else bare(case.word, way)

    return count


@pytest.mark.parametrize(
    ("case", "way"),
    [
        pytest.param(case, way, id=f"{case.title}-{way}")
        for case in hooks.CASES
        # how it was looked up makes a difference to launches alone
        for way in (["elf", "getproc"] if case.word == "launch" else ["elf"])
    ],
)
def test_a_hooked_call_stays_within_its_instructions(
    count: Counts, case: hooks.Case, way: str
) -> None:
    ours, bare = count(Path(shim_path()), case, way), count(None, case, way)

    instructions = ours.instructions - bare.instructions
    assert 1 <= instructions <= MOST_INSTRUCTIONS[case.word][case.core_percent]
    # A launch in some hundreds is measured, which takes more.
    locked = round(ours.locked - bare.locked)
    assert locked == LOCKED[case.word][case.core_percent]
