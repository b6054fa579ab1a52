"""No test outlives itself: what it leaves running is ended, and it fails (a pytest plugin).

One orphan that spins takes a core from every test after it, and those then fail instead of the one
that is wrong. A process is ours when its environment carries the mark of this run; programs that
are started with an environment of their own are their starter's to end.
"""

import os
import time
import uuid
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest

MARK = "VGPU_TEST_RUN"
#: The number of a process, and when it started.
Left = tuple[int, str]
GRACE_SECONDS = 10.0  # a program that was told to end may still be on its way
_LOOKS, _LOOK_AGAIN_SECONDS = 50, 0.002
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD of linux/sched.h
#: Kernel threads that were met, and processes whose environment is really empty.
_kernel_threads: set[str] = set()
_bare: set[Left] = set()


def pytest_configure() -> None:
    """Marks this process, and so what it starts from now on."""
    os.environ[MARK] = uuid.uuid4().hex


def _start_of(pid: str) -> str:
    """When it started, in ticks since boot: with its number, the name of a process for ever."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def _environment(pid: str) -> bytes:
    """The environment of a process.

    A zombie has none, and neither has a thread of the kernel, nor for a moment a process that is
    becoming another program: that one is asked again.

    Raises:
        OSError: it has ended, or is another user's.
    """
    for _ in range(_LOOKS):
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as environ:
            text = environ.read()
        if text or pid in _kernel_threads:
            return text
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        state, flags, start = fields[0], int(fields[6]), fields[19]
        if flags & _KERNEL_THREAD:
            _kernel_threads.add(pid)
        if state in "ZX" or flags & _KERNEL_THREAD or (int(pid), start) in _bare:
            return b""
        time.sleep(_LOOK_AGAIN_SECONDS)
    _bare.add((int(pid), start))
    return b""


def processes() -> set[Left]:
    """The live processes that carry the mark, without this one.

    Asked after every test, so it reads one file a process that has an environment.
    """
    mark = f"{MARK}={os.environ[MARK]}".encode()
    found = set()
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if mark in _environment(pid).split(b"\0") and int(pid) != os.getpid():
                found.add((int(pid), _start_of(pid)))
        except OSError:  # it has ended, or is another user's
            continue
    return found


def end(before: set[Left]) -> list[str]:
    """Ends what has been started since ``before`` and lives on; returns what that was."""
    deadline = time.monotonic() + GRACE_SECONDS
    left = processes() - before
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = processes() - before
    words = []
    for pid, _ in left:
        try:
            process = psutil.Process(pid)
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
