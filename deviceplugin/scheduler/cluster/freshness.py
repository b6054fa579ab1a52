"""How old what is known is, and until when schedulers are still answered from it.

While the API server does not answer, the last state is a good guess for a while: nodes whose units
are all given cannot change unseen, and a wrong guess ends in a refused bind or admission. After
that it is said so instead. Safe to use from several threads.
"""

import time
from collections.abc import Callable

DEFAULT_LIMIT_S = 60.0


class Freshness:
    """Since when the state is not of the present."""

    def __init__(
        self,
        is_current: Callable[[], bool],
        problem: Callable[[], str],
        limit_s: float = DEFAULT_LIMIT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Knows of no moment at which the state was of the present.

        Args:
            is_current: says whether it is.
            problem: says why not, empty where nobody knows.
            limit_s: how old it may be.
            clock: never goes back.
        """
        self._is_current, self._problem = is_current, problem
        self._limit_s, self._clock = limit_s, clock
        self._seen_s: float | None = None

    @property
    def age_s(self) -> float | None:
        """How long ago the state was of the present; None where it never was."""
        now_s = self._clock()
        if self._is_current():
            self._seen_s = now_s
        return None if self._seen_s is None else now_s - self._seen_s

    @property
    def obstacle(self) -> str:
        """Why nobody can be answered now, as a sentence; empty where they can be."""
        age_s = self.age_s
        if age_s is not None and age_s <= self._limit_s:
            return ""
        problem = self._problem()
        why = f": {problem}" if problem else ""
        if age_s is None:
            return f"nodes and pods of the cluster are not known yet{why}"
        return (
            f"what is known of nodes and pods is {age_s:.0f} s old, and is used for "
            f"{self._limit_s:.0f} s at most{why}"
        )
