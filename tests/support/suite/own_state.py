"""A test changes nothing that the next one finds (a pytest plugin).

Tests of one worker share its environment, its folder, its loggers and what signals do. One that
leaves any of these changed makes another fail, or pass, by the order in which they run; so it fails
itself. What lies in memory and below /run is shared with whatever else runs on the machine, and is
compared at the end of a run in the long form.

A program's `main` that a test calls sets up the agent's logger for stderr, for good. That is put
back without a word: pytest looks at loggers when a test begins to decide where it listens, and the
next test would get its lines twice, or none.
"""

import logging
import os
import signal
from collections.abc import Generator, Iterator

import pytest

from support import IS_LONG
from support.suite.leftovers import MARK

#: Folders of the machine in which nothing of a run stays.
_FOLDERS = ("/dev/shm", "/run", "/run/vgpu", "/run/cdi")
#: What a run calls its own folder, which another one may have made meanwhile.
_RUNS = "vgpu-tests-"
#: Of pytest, and of this run's workers.
_MAY_CHANGE = {"PYTEST_CURRENT_TEST", MARK}
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGALRM)
_THERE = pytest.StashKey[list[str]]()


def _state() -> dict[str, object]:
    """What there is, by name."""
    found: dict[str, object] = {f"variable {name}": value for name, value in os.environ.items()}
    for name in _MAY_CHANGE:
        found.pop(f"variable {name}", None)
    found |= {f"what {number.name} does": signal.getsignal(number) for number in _SIGNALS}
    root = logging.getLogger()
    found["root logger"] = (root.level, root.disabled, root.manager.disable)
    found["current folder"] = os.getcwd()
    return found


def _shared() -> list[str]:
    """The files in folders of the machine."""
    return sorted(
        f"{folder}/{name}"
        for folder in _FOLDERS
        for name in _names(folder)
        if not name.startswith(_RUNS)
    )


def _names(folder: str) -> list[str]:
    """What lies in a folder; nothing where none is, or where it is closed to who runs the tests."""
    try:
        return os.listdir(folder)
    except (FileNotFoundError, PermissionError):
        return []


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[_THERE] = _shared()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails a run in the long form that leaves files on the machine."""
    if IS_LONG and _left(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _left(config: pytest.Config) -> list[str]:
    there = config.stash[_THERE]
    return [each for each in _shared() if each not in there]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Names them, in each form."""
    if left := _left(terminalreporter.config):
        terminalreporter.section("on this machine since the run began", red=IS_LONG)
        terminalreporter.line(", ".join(left))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Fails a test that leaves a change, after everything of it was torn down."""
    before = _state()
    result = yield
    now = _state()
    changed = sorted(
        name for name in before.keys() | now.keys() if before.get(name) != now.get(name)
    )
    if changed:
        words = "the test left a change: " + "; ".join(
            f"{name} was {before.get(name, 'not there')!r} and is {now.get(name, 'not there')!r}"
            for name in changed
        )
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", words, "teardown")
        item.ihook.pytest_runtest_logreport(report=report)
    return result


@pytest.fixture(autouse=True)
def logger_as_it_was() -> Iterator[None]:
    """Puts back what a test changed of the agent's logger."""
    logger = logging.getLogger("deviceplugin")
    before = logger.level, logger.propagate, list(logger.handlers)
    yield
    logger.setLevel(before[0])
    logger.propagate = before[1]
    logger.handlers[:] = before[2]
