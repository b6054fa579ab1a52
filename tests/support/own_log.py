"""Each test finds the agent's logger as it is when Python begins (a pytest plugin).

A program's `main` that a test calls sets the logger up for stderr, for good. pytest looks at
loggers when a test begins to decide where it listens, so the next test in that process would get
its lines twice, or none.
"""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def logger_as_it_was() -> Iterator[None]:
    """Puts back what a test changed of the logger."""
    logger = logging.getLogger("deviceplugin")
    before = logger.level, logger.propagate, list(logger.handlers)
    yield
    logger.setLevel(before[0])
    logger.propagate = before[1]
    logger.handlers[:] = before[2]
