"""No test outlives itself: what a test started and did not end is ended, and the test fails.

One orphan that spins takes a core from every test after it, and those then fail instead of the one
that is wrong. A process is ours when its environment carries the mark of this run; programs that
are started with an environment of their own are their starter's to end.
"""

import os
import time
import uuid

import psutil

MARK = "VGPU_TEST_RUN"
GRACE_SECONDS = 2.0  # a program that was told to end may still be on its way


def mark_environment() -> None:
    """Marks this process, and so what it starts from now on."""
    os.environ[MARK] = uuid.uuid4().hex


def processes() -> set[psutil.Process]:
    """The live processes that carry the mark, without this one."""
    found = set()
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        try:
            ours = process.environ().get(MARK) == os.environ[MARK]
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.add(process)
        except psutil.Error:
            continue
    return found


def end(before: set[psutil.Process]) -> list[str]:
    """Ends what has been started since ``before`` and lives on; returns it in words."""
    deadline = time.monotonic() + GRACE_SECONDS
    left = processes() - before
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = processes() - before
    words = []
    for process in left:
        try:
            words.append(f"process {process.pid}: {' '.join(process.cmdline())}")
            process.kill()
        except psutil.Error:
            continue
    return words
