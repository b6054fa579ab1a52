"""What happened when: told on stderr as it happens, and counted."""

import sys
import threading
import time
from collections import Counter


class Log:
    """The events and violations of a run; any thread may note some.

    Attributes:
        counts: of events by kind.
        violations: what was seen that must not be.
    """

    def __init__(self, seed: int) -> None:
        self._seed, self._began_s = seed, time.monotonic()
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []

    def note(self, kind: str, words: str = "") -> None:
        """Notes an event."""
        with self._lock:
            self.counts[kind] += 1
            self._say(f"{kind}: {words}" if words else kind)

    def violated(self, what: str) -> None:
        """Notes a violation, the first time that it is seen; what led to it stands above it."""
        with self._lock:
            if what not in self.violations:
                self.violations.append(what)
                self._say(f"VIOLATION (seed {self._seed}): {what}")

    def _say(self, words: str) -> None:
        print(f"{time.monotonic() - self._began_s:8.2f} s  {words}", file=sys.stderr, flush=True)
