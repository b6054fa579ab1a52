"""Other orders of the tests, in the long form and with ``VGPU_RANDOM`` (a pytest plugin).

A test that needs another one before it, or none, passes by luck of its place. So files change
places, and tests within each; a file stays together, since what it shares is made once. The header
names what repeats the order: ``VGPU_RANDOM=<that>`` has it again.
"""

import random
from itertools import groupby

import pytest

from support.suite.chance import RANDOM, VARIABLE

_SEED = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Decides whether, and by which seed."""
    if RANDOM != "0":
        fresh = str(random.SystemRandom().getrandbits(32))
        config.stash[_SEED] = fresh if RANDOM == "1" else RANDOM


def pytest_report_header(config: pytest.Config) -> str | None:
    seed = config.stash.get(_SEED, None)
    return None if seed is None else f"order of the tests: {VARIABLE}={seed}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Shuffles files, and the tests of each by themselves."""
    seed = config.stash.get(_SEED, None)
    if seed is None:
        return
    chance = random.Random(seed)
    files = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
    chance.shuffle(files)
    for tests in files:
        chance.shuffle(tests)
    items[:] = [item for tests in files for item in tests]
