"""That the agent's helper threads come round, as ``/healthz`` asks.

A thread that follows the GPUs makes no call itself that may never return, and every call to the API
server has a deadline. So one that is late has ended or hangs by a fault of ours, and a restart of
the agent helps. A call of NVML that hangs makes no thread late: it withdraws its GPU, and a restart
would wait for that call as well. Nor has a thread that waits for a container a heartbeat
(`store.held_files`): no container may have the agent restarted.
"""

from collections.abc import Callable

from deviceplugin import runtime

#: Longer than any turn takes: two deadlines of NVML's calls, and a pause.
HELPER_LATE_S = 60.0


class Beat:
    """When one thread last came round; called by the thread each time it does.

    It counts from the first call on, and not while the thread rests.
    """

    def __init__(
        self, late_s: float = HELPER_LATE_S, clock: Callable[[], float] = runtime.monotonic
    ) -> None:
        """Was not called yet.

        Args:
            late_s: longer than any of its turns takes, in seconds.
            clock: seconds, never back.
        """
        self.late_s, self._clock = late_s, clock
        self._turned_at_s: float | None = None

    def __call__(self) -> None:
        """Notes that the thread is at work."""
        self._turned_at_s = self._clock()

    def rest(self) -> None:
        """Notes that the thread waits until there is something to do, however long that takes."""
        self._turned_at_s = None

    def age_s(self) -> float:
        """Returns for how long the thread has not come round; 0 where it rests."""
        turned_at_s = self._turned_at_s
        return 0.0 if turned_at_s is None else self._clock() - turned_at_s


class Heartbeats:
    """The heartbeats of one agent's helper threads."""

    def __init__(self, clock: Callable[[], float] = runtime.monotonic) -> None:
        """Knows no thread yet.

        Args:
            clock: seconds, never back.
        """
        self._clock = clock
        self._beats: dict[str, Beat] = {}

    def of(self, name: str) -> Beat:
        """Returns the heartbeat of another thread.

        Args:
            name: of what it does.
        """
        self.look_at(name, Beat(clock=self._clock))
        return self._beats[name]

    def look_at(self, name: str, beat: Beat) -> None:
        """Looks at a heartbeat that the thread has already."""
        self._beats[name] = beat

    def problem(self) -> str | None:
        """Returns which threads are late, None where none is."""
        ages_s = {name: (beat.age_s(), beat.late_s) for name, beat in self._beats.items()}
        late = [
            f"the agent's thread for {name} has not run for {age_s:.0f} s"
            for name, (age_s, late_s) in ages_s.items()
            if age_s > late_s
        ]
        return "; ".join(late) or None
