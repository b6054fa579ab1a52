"""Tests marked ``virtual`` run in a time of their own, as do their programs (a pytest plugin).

Such a test reads like one that sleeps and measures, and what it measures is right to the nanosecond
on any machine. In its process, and in those that it starts, the clock and the waits are those of
``benchmarks/native/virtual_time``. A second there takes as long as what is done in it.

A library takes over a process when the process begins. So each worker has a second session of
pytest, which begins with it and is asked for one test after another. That session forks a process
for each, in which time begins.
"""

import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from typing import TextIO

import pytest
from _pytest.runner import runtestprotocol

from support.shim import native_programs
from support.shim.virtual_time import FLAGS, SOURCES
from support.suite.leftovers import MARK
from support.waiting import PATIENCE_S

_LINE = "VGPU_VIRTUAL_TESTS"  # the descriptor by which an inner session is asked and answers


def pytest_configure(config: pytest.Config) -> None:
    line = os.environ.get(_LINE)
    config.pluginmanager.register(Inner(config, int(line)) if line else Outer())


def _files(line: socket.socket) -> tuple[TextIO, TextIO]:
    """Returns what is read and what is written."""
    line.set_inheritable(False)
    return line.makefile("r"), line.makefile("w")


def _is_virtual(item: pytest.Item) -> bool:
    return item.get_closest_marker("virtual") is not None


class Outer:
    """Asks an inner session for each of these tests."""

    def __init__(self) -> None:
        self._inner: subprocess.Popen[str] | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> bool | None:
        """Reports what the inner session says of a test."""
        if not _is_virtual(item):
            return None
        hook, config = item.ihook, item.config
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        inner = self._inner or self._start(item.session)
        print(item.nodeid, file=self._asked, flush=True)
        for line in iter(self._said.readline, "\n"):
            assert line, f"the session for virtual tests ended with status {inner.wait()}"
            report = hook.pytest_report_from_serializable(config=config, data=json.loads(line))
            if isinstance(report.longrepr, list):  # of a skip: JSON has no tuples
                report.longrepr = tuple(report.longrepr)
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        # What a test before it left set up for this file, which may end here.
        item.session._setupstate.teardown_exact(nextitem)
        return True

    def _start(self, session: pytest.Session) -> "subprocess.Popen[str]":
        files = {item.path for item in session.items if _is_virtual(item)}
        compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
        library = native_programs.build(compiler, *SOURCES, flags=FLAGS)
        ours, theirs = socket.socketpair()
        self._said, self._asked = _files(ours)
        # It outlives the test that asks first, as no program of a test may.
        env = {name: value for name, value in os.environ.items() if name != MARK}
        env |= {"LD_PRELOAD": str(library), "PYTHONHASHSEED": "0", _LINE: str(theirs.fileno())}
        # At the same addresses each time: what the shim knows of a kernel lies at a hash of one.
        self._inner = subprocess.Popen(
            ["setarch", "-R", sys.executable, "-m", "pytest", "-q", *map(str, sorted(files))],
            cwd=session.config.rootpath,
            env=env,
            pass_fds=[theirs.fileno()],
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        theirs.close()
        ours.close()
        return self._inner

    def pytest_sessionfinish(self) -> None:
        """Ends it; a worker's end does so, too."""
        if self._inner is not None:
            self._asked.close()
            self._said.close()
            self._inner.wait()


class Inner:
    """Runs each test that it is asked for in a process and a time of its own."""

    def __init__(self, config: pytest.Config, line: int) -> None:
        self._config = config
        self._asked, self._said = _files(socket.socket(fileno=line))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Returns at the end of what is asked."""
        items = {item.nodeid: item for item in session.items}
        for line in self._asked:
            item = items[line.rstrip("\n")]
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            print(file=self._said, flush=True)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            child = os.fork()
            if child == 0:
                self._run(item, f"{folder}/time")
            ended = os.pidfd_open(child)
            if not select.select([ended], [], [], PATIENCE_S)[0]:
                os.kill(child, signal.SIGKILL)
            os.close(ended)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status != 0:
            words = f"its process ended with status {status}"
            self.pytest_runtest_logreport(
                pytest.TestReport(item.nodeid, item.location, {}, "failed", words, "call")
            )
        return True

    def _run(self, item: pytest.Item, time_file: str) -> None:
        """Runs a test where time begins, and ends this process."""
        plugins = self._config.pluginmanager
        plugins.unregister(plugins.get_plugin("support.suite.watchdog"))  # it goes by the real time
        os.environ["VIRTUAL_TIME_FILE"] = time_file
        ctypes.CDLL(None).virtual_time_enter()
        for report in runtestprotocol(item, log=False, nextitem=None):
            self.pytest_runtest_logreport(report)
        os._exit(0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Says it; of what other plugins report, too."""
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        print(json.dumps(data), file=self._said, flush=True)
