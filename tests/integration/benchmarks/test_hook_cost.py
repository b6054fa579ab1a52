"""What a hooked call may cost, in instructions: the gate that does not depend on the machine."""

import shutil
from pathlib import Path

import pytest

from benchmarks import hooks
from benchmarks.nulldriver import build_client, build_driver
from libvgpu.artifacts import shim_path

# A launch of an uncapped and of a capped container within its budget; an allocation with its free.
# A small piece is looked for among the slabs, too.
MOST_INSTRUCTIONS = {"launch": {100: 8, 50: 75}, "alloc": {100: 1700}, "async": {100: 1400}}

pytestmark = pytest.mark.skipif(
    shutil.which("valgrind") is None, reason="valgrind is not on PATH (apt install valgrind)"
)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> hooks.Bench:
    driver = build_driver(tmp_path_factory.mktemp("bench"))
    return hooks.Bench(driver.parent, build_client("hooks_client", driver))


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
    bench: hooks.Bench, case: hooks.Case, way: str
) -> None:
    shim = Path(shim_path())

    base = bench.count_instructions(None, case, way)
    added = bench.count_instructions(shim, case, way) - base

    assert 1 <= added <= MOST_INSTRUCTIONS[case.word][case.core_percent]
