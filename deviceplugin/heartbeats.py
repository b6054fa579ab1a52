"""That the agent's helper threads come round, as ``/healthz`` asks.

A thread that follows the GPUs makes no call itself that may never return, so one that is late has
ended or hangs by a fault of ours, and a restart of the agent helps. A call of NVML that hangs makes
no thread late: it withdraws its GPU, and a restart would wait for that call as well.
"""

from collections.abc import Callable

from deviceplugin import runtime

#: Longer than any turn takes: two deadlines of NVML's calls, and a pause.
HELPER_LATE_S = 60.0


class Heartbeats:
    """When each helper thread last came round."""

    def __init__(self, clock: Callable[[], float] = runtime.monotonic) -> None:
        """Knows no thread yet.

        Args:
            clock: seconds, never back.
        """
        self._clock = clock
        self._turned_at_s: dict[str, float] = {}

    def of(self, name: str) -> Callable[[], None]:
        """Returns what a thread calls each time it comes round; it counts from its first call on.

        Args:
            name: of what it does.
        """

        def turned() -> None:
            self._turned_at_s[name] = self._clock()

        return turned

    def problem(self) -> str | None:
        """Returns which thread is late, None where none is."""
        now_s = self._clock()
        for name, at_s in tuple(self._turned_at_s.items()):
            if now_s - at_s > HELPER_LATE_S:
                return f"the agent's thread for {name} has not run for {now_s - at_s:.0f} s"
        return None
