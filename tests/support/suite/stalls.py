"""Sees a machine that stands still, which its books of processor time may not show.

A container that has used up its quota, or a virtual machine that its host stops, loses a tenth of a
second at a stretch, and no process has had it. A thread that only sleeps wakes up late then. Other
threads of the process keep it from Python's lock for some milliseconds (`sys.getswitchinterval`),
so it is the length of the longest stretch that counts.
"""

import threading
import time
from types import TracebackType

SLEEP_SECONDS = 0.005


class StallWatch:
    """Watches while it is entered.

    Attributes:
        longest_seconds: by how much a sleep was too long at most.
    """

    def __init__(self) -> None:
        self.longest_seconds = 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stalls", daemon=True)

    def __enter__(self) -> "StallWatch":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        before = time.monotonic()
        while not self._is_over.is_set():
            time.sleep(SLEEP_SECONDS)
            now = time.monotonic()
            self.longest_seconds = max(self.longest_seconds, now - before - SLEEP_SECONDS)
            before = now
