"""No test outlives itself: what it leaves running is ended, and it fails (a pytest plugin).

One orphan that spins takes a core from every test after it, and those then fail instead of the one
that is wrong. A process is ours when its environment carries the mark of this run; programs that
are started with an environment of their own are their starter's to end.
"""

import os
import time
import uuid
from collections.abc import Generator

import psutil
import pytest

MARK = "VGPU_TEST_RUN"
GRACE_SECONDS = 2.0  # a program that was told to end may still be on its way


def pytest_configure() -> None:
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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Fails a test that leaves a process behind, after everything of it was torn down."""
    before = processes()
    result = yield
    left = end(before)
    if left:
        words = "the test left behind:\n" + "\n".join(left)
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", words, "teardown")
        item.ihook.pytest_runtest_logreport(report=report)
    return result
