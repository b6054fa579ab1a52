"""Waiting for what is to happen: one bound for all of it, since a slow machine is no failure.

Only a failure ever takes as long as the bound, so it may be far longer than what is waited for. How
soon something has to come is another matter: a test that claims that has a `bar`. In a world
(`support/world`) the time is the world's.
"""

from collections.abc import Callable
from typing import TypeVar

import pytest
from _pytest.mark import ParameterSet

from deviceplugin import runtime

#: The longest that a test waits for something that is to happen.
PATIENCE_S = 300.0

#: How soon one asks again: first, and then as a part of what one has waited. Most things come at
#: once, and to ask costs a call to another program, or a look at all that an agent has.
_POLL_S, _POLL_PART = 0.01, 0.05

_T = TypeVar("_T")


def bar(most_s: float) -> list[ParameterSet]:
    """Parameters of a test with a bar: on any machine without it, and where time is measured."""
    return [
        pytest.param(PATIENCE_S, id="any machine"),
        pytest.param(most_s, id=f"{most_s:g} s", marks=pytest.mark.timing),
    ]


def wait_until(
    condition: Callable[[], _T | None], what: str = "", patience_s: float = PATIENCE_S
) -> _T:
    """Returns what ``condition`` returns once that is true; fails if it never is.

    Args:
        condition: asked again and again.
        what: is to happen, for the message of a failure; else the condition's code says it.
        patience_s: how long; a shorter one is for tests of what waits.
    """
    began_s = runtime.monotonic()
    while not (found := condition()):
        waited_s = runtime.monotonic() - began_s
        assert waited_s < patience_s, f"not so in {patience_s:.0f} s: {what or _place(condition)}"
        runtime.sleep(max(_POLL_S, waited_s * _POLL_PART))
    return found


def _place(condition: Callable[[], object]) -> str:
    """Returns where a condition stands in the sources, its own name where it has no code."""
    code = getattr(condition, "__code__", None)
    if code is None:
        return repr(condition)
    return f"{condition.__qualname__}, {code.co_filename}:{code.co_firstlineno}"
