"""Several processes run the tests of one collection (a pytest plugin): ``--workers 4``.

Collecting these tests takes as long as a tenth of them, so it is done once: this process then forks
its workers, which have everything in memory already. It gives each of them a file of tests at a
time, in the order of the collection, and reports what they say. A worker that dies fails its test;
another one takes over the rest of its file.
"""

import os
import signal
import sys
import threading
import warnings
from collections import deque
from dataclasses import dataclass, field
from itertools import groupby
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from _pytest.junitxml import xml_key

from support.suite.watchdog import TELLER

#: Where the workers of a run find what they share; only a worker has it.
SHARED = pytest.StashKey[Path]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("workers")
    group.addoption("--workers", type=int, default=0, help="processes that run the tests")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Runs the tests in workers where there are several files of them."""
    if session.config.option.workers == 0 or session.config.option.collectonly:
        return None
    if session.testsfailed and not session.config.option.continue_on_collection_errors:
        return None  # pytest's own loop says it
    Pool(session).run()
    return True


@dataclass
class Worker:
    """A child, and what it has been given.

    Attributes:
        given: places of its tests in the collection, without those that are done.
        running: the one it is at.
    """

    pid: int
    connection: Connection
    given: deque[int] = field(default_factory=deque)
    running: int | None = None


class Pool:
    """The workers, seen by the process with the terminal."""

    def __init__(self, session: pytest.Session) -> None:
        self._session, self._items = session, session.items
        paths = groupby(range(len(self._items)), key=lambda place: self._items[place].path)
        self._files = deque(deque(places) for _, places in paths)
        self._workers: dict[Connection, Worker] = {}
        self._started = 0

    def run(self) -> None:
        """Returns when all tests have run, or raises as pytest's own loop does."""
        assert len(os.listdir("/proc/self/task")) == 1, (
            f"a thread was started before any test, and would not be in a worker: "
            f"{threading.enumerate()}"
        )
        # Python begins its folders anew where they were given: before a worker makes files there.
        self._base: Path = vars(self._session.config)["_tmp_path_factory"].getbasetemp()
        try:
            for _ in range(min(self._session.config.option.workers, len(self._files))):
                self._start()
            while self._workers:
                for connection in wait(list(self._workers)):
                    assert isinstance(connection, Connection)
                    self._hear(self._workers[connection])
                self._raise_if_over()
        finally:
            left = list(self._workers.values())
            for worker in left:
                os.kill(worker.pid, signal.SIGINT)  # only this process may have been told
            for worker in left:
                self._end(worker)

    def _raise_if_over(self) -> None:
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def _start(self) -> None:
        ours, theirs = Pipe()
        folder = self._base / f"w{self._started}"  # short: paths of sockets are in it
        self._started += 1
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            ours.close()
            for other in self._workers:
                other.close()
            Child(self._session, theirs, folder).run()
        theirs.close()
        self._workers[ours] = Worker(pid, ours)

    def _end(self, worker: Worker) -> int:
        """Waits for its end, which comes with that of its connection; returns its status."""
        del self._workers[worker.connection]
        worker.connection.close()
        return os.waitpid(worker.pid, 0)[1]

    def _hear(self, worker: Worker) -> None:
        try:
            kind, what = worker.connection.recv()
        except (EOFError, OSError):
            self._bury(worker)
            return
        hook = self._session.config.hook
        if kind == "file?":
            places = self._files.popleft() if self._files else deque()
            worker.given += places
            worker.connection.send(list(places))
        elif kind == "begins":
            worker.running = what
        elif kind == "ends":
            worker.given.remove(what)
            worker.running = None
        elif kind == "report":
            self._report(
                hook.pytest_report_from_serializable(config=self._session.config, data=what)
            )
        elif kind == "warning":
            message, kwargs = what
            said = warnings.WarningMessage(*message)
            hook.pytest_warning_recorded.call_historic(kwargs=kwargs | {"warning_message": said})

    def _report(self, report: pytest.TestReport) -> None:
        hook = self._session.config.hook
        hook.pytest_runtest_logreport(report=report)
        if report.when == "teardown":
            hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)

    def _bury(self, worker: Worker) -> None:
        """Fails the test of a worker that died, and has another one go on."""
        status = self._end(worker)
        code = os.waitstatus_to_exitcode(status)
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with status {code}"
        if worker.running is not None:
            item = self._items[worker.running]
            words = f"the worker that ran it ended {how}"
            failed = pytest.TestReport(item.nodeid, item.location, {}, "failed", words, "call")
            self._report(failed)
            worker.given.remove(worker.running)
        elif code != 0:
            raise self._session.Failed(f"a worker ended {how} outside of a test")
        if worker.given:
            self._files.appendleft(worker.given)
        if code != 0 and self._files:
            self._start()


class Child:
    """The worker itself."""

    def __init__(self, session: pytest.Session, connection: Connection, folder: Path) -> None:
        self._session, self._config, self._connection = session, session.config, connection
        self._folder, self._is_registered = folder, False

    def run(self) -> None:
        """Runs what it is given; never returns."""
        status = 1
        try:
            self._become_one()
            self._run_all()
            status = 0
        except (BrokenPipeError, ConnectionResetError, EOFError, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # said twice where a terminal says it
            self._session._setupstate.teardown_exact(None)  # the run is over
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _become_one(self) -> None:
        """Takes leave of what is the other process's: its terminal, its reports and its files."""
        plugins = self._config.pluginmanager
        terminal: Any = plugins.get_plugin("terminalreporter")
        for plugin in (terminal, plugins.get_plugin(TELLER), self._config.stash.get(xml_key, None)):
            if plugin is not None:
                plugins.unregister(plugin)
        # Stacks of a test that ran out of time are written there.
        plugins.register(SimpleNamespace(_tw=terminal._tw), "terminalreporter")
        # Files of what is captured lie behind descriptors, which two processes cannot share.
        capture: Any = plugins.get_plugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()
        self._folder.mkdir(mode=0o700)
        vars(self._config)["_tmp_path_factory"]._basetemp = self._folder
        self._config.stash[SHARED] = self._folder.parent
        plugins.register(self)  # pytest tells it of all warnings before, of other workers too
        self._is_registered = True

    def _run_all(self) -> None:
        while places := self._ask():
            items = [self._session.items[place] for place in places]
            for place, item, following in zip(places, items, [*items[1:], None], strict=True):
                self._connection.send(("begins", place))
                # After the last one of a file only what is the whole run's is kept.
                until = following or SimpleNamespace(listchain=lambda: [self._session])
                self._config.hook.pytest_runtest_protocol(item=item, nextitem=until)
                self._connection.send(("ends", place))
        self._session._setupstate.teardown_exact(None)

    def _ask(self) -> list[int]:
        """Returns the places of a file's tests; none at the end of the run."""
        self._connection.send(("file?", None))
        places: list[int] = self._connection.recv()
        return places

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        said = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(("report", said))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str,
        location: tuple[str, int, str] | None,
    ) -> None:  # fmt: skip
        if not self._is_registered:
            return
        said = warning_message
        words = f"{said.category.__name__}: {said.message}"  # the class may not be one to send
        message: tuple[Any, ...] = (pytest.PytestWarning(words), pytest.PytestWarning,
                                    said.filename, said.lineno)  # fmt: skip
        kwargs = {"when": when, "nodeid": nodeid, "location": location}
        self._connection.send(("warning", (message, kwargs)))
