"""No test outlives itself: what it leaves running is ended, and it fails (a pytest plugin).

One orphan that spins takes a core from every test after it, and those then fail instead of the one
that is wrong. A process is ours when its environment carries the mark of this worker; programs that
are started with an environment of their own are their starter's to end.

What lives on after a test is a child of this process, or its own parent has ended and the kernel
has given it to another, mostly to process 1. So the children of those two are looked at after each
test, and only the environments of new ones are read. What a warm server forked (`warm`) is a child
of that, which knows it.
"""

import os
import time
import uuid
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest

from support import warm

MARK = "VGPU_TEST_RUN"
GRACE_SECONDS = 10.0  # a program that was told to end may still be on its way
_LOOKS, _LOOK_AGAIN_SECONDS = 50, 0.002


class Watch:
    """What one process has started, and what of it lives.

    Attributes:
        owner: the process.
        takes_orphans: the process that the kernel gives them to.
        known: children that are not the test's: they were there before, or are not ours.
    """

    def __init__(self, takes_orphans: int) -> None:
        os.environ[MARK] = uuid.uuid4().hex
        self.owner, self.known = os.getpid(), set[int]()
        self._mark, self.takes_orphans = f"{MARK}={os.environ[MARK]}".encode(), takes_orphans
        self.look()

    def look(self) -> set[int]:
        """Returns the live processes of the test; whatever else there is counts as known."""
        children = _children_of(self.owner) | _children_of(self.takes_orphans)
        ours = {pid for pid in children - self.known if self._mark in _environment(pid)}
        self.known = children - ours
        return ours

    def end(self) -> list[str]:
        """Ends what the test has started and lives on; returns what that was."""
        deadline = time.monotonic() + GRACE_SECONDS
        while (left := self.look() | warm.left()) and time.monotonic() < deadline:
            time.sleep(0.05)
        words = []
        for pid in left:
            try:
                process = psutil.Process(pid)
                for each in (process, *process.children(recursive=True)):
                    words.append(f"process {each.pid}: {' '.join(each.cmdline())}")
                    each.kill()
            except psutil.Error:
                continue
        return words


_watch: Watch | None = None


def pytest_configure() -> None:
    """Marks this process, and so what it starts from now on."""
    global _watch
    _watch = Watch(_who_takes_orphans())


def _of_this_process() -> Watch:
    """A worker is a fork of the process that was configured, and has a mark of its own."""
    global _watch
    assert _watch is not None
    if _watch.owner != os.getpid():
        _watch = Watch(_watch.takes_orphans)
    return _watch


def _children_of(pid: int) -> set[int]:
    """The children of a process, zombies among them: each thread lists its own."""
    found: set[int] = set()
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as children:
                found.update(map(int, children.read(1 << 20).split()))
        except OSError:  # a thread that has just ended
            continue
    return found


def _who_takes_orphans() -> int:
    """Makes an orphan, which tells who its parent has become."""
    read, write = os.pipe()
    if (parent := os.fork()) == 0:
        parent = os.getpid()
        if os.fork() == 0:
            while os.getppid() == parent:
                time.sleep(_LOOK_AGAIN_SECONDS)
            os.write(write, str(os.getppid()).encode())
        os._exit(0)
    os.waitpid(parent, 0)
    os.close(write)
    with open(read, "rb") as answer:
        return int(answer.read())


def _environment(pid: int) -> list[bytes]:
    """The environment of a process; none of one that has ended or is another user's.

    A zombie has none. Neither has a process for the moment in which it becomes another program:
    that one is asked again.
    """
    for _ in range(_LOOKS):
        try:
            text = Path(f"/proc/{pid}/environ").read_bytes()
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return []
        if text or state in "ZX":
            return text.split(b"\0")
        time.sleep(_LOOK_AGAIN_SECONDS)
    return []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Fails a test that leaves a process behind, after everything of it was torn down."""
    watch = _of_this_process()
    result = yield
    if left := watch.end():
        words = "the test left behind:\n" + "\n".join(left)
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", words, "teardown")
        item.ihook.pytest_runtest_logreport(report=report)
    return result
