"""How long the machine itself kept everybody waiting: the control of a measured wait.

A hypervisor may take a processor away for seconds, and whoever runs there then seems to hang. One
process on each processor does nothing but sleep a little, over and over; by how much its longest
sleep was too long is what any wait in that time may owe to the machine. They share nothing with
what is measured.

A delay shows only once it is over, so `Heartbeat.longest_ns` waits for a beat of each; and since
what is measured may have begun in the interval before, it answers for that one, too.
"""

import mmap
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

BEAT_SECONDS = 0.01
_MOST_WAITED_SECONDS = 60.0

# Of 8-byte words, word 0 is the interval's number, written by the parent; then each process has
# two: its longest delay in the interval in ns, and how often it has beaten.
_BEATS = """
import mmap, os, sys, time
path, processor, mine, beat_ns = sys.argv[1], *map(int, sys.argv[2:])
os.sched_setaffinity(0, {processor})
with open(path, "r+b") as file:
    words = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")
number, at_ns, parent = words[0], time.monotonic_ns(), os.getppid()
while os.getppid() == parent:
    time.sleep(beat_ns / 1e9)
    now_ns = time.monotonic_ns()
    if words[0] != number:
        number, words[mine] = words[0], 0
    words[mine] = max(words[mine], now_ns - at_ns - beat_ns)
    words[mine + 1] += 1
    at_ns = now_ns
"""


@dataclass
class Heartbeat:
    """Made by `open_heartbeat`; for one thread."""

    words: "memoryview[int]"
    before_ns: int = 0

    def longest_ns(self) -> int:
        """Returns the longest delay in this interval and the one before, in ns; ends the interval.

        Raises:
            TimeoutError: a process does not beat any more.
        """
        # the beat under way may have begun before what is asked about was over
        enough = [beats + 1 for beats in self.words[2::2]]
        give_up_at = time.monotonic() + _MOST_WAITED_SECONDS
        while any(beats < least for beats, least in zip(self.words[2::2], enough, strict=True)):
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"a heartbeat was not there for {_MOST_WAITED_SECONDS:g} s")
            time.sleep(BEAT_SECONDS / 4)
        now_ns = max(self.words[1::2])
        longest_ns = max(now_ns, self.before_ns)
        self.before_ns = now_ns
        self.words[0] += 1
        return longest_ns


@contextmanager
def open_heartbeat() -> Iterator[Heartbeat]:
    """Starts a process on each processor that this one may use, and ends them.

    Raises:
        TimeoutError: one does not begin.
    """
    processors = sorted(os.sched_getaffinity(0))
    with tempfile.NamedTemporaryFile(prefix="vgpu-heartbeat-") as file:
        file.truncate(8 * (1 + 2 * len(processors)))
        words = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")
        processes = [
            subprocess.Popen(
                [sys.executable, "-S", "-c", _BEATS, file.name, str(processor),
                 str(1 + 2 * index), str(int(BEAT_SECONDS * 1e9))]
            )
            for index, processor in enumerate(processors)
        ]  # fmt: skip
        heartbeat = Heartbeat(words)
        try:
            heartbeat.longest_ns()  # once all have begun
            yield heartbeat
        finally:
            for process in processes:
                process.kill()
                process.wait()
