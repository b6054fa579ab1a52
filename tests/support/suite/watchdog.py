"""No test stops the run, and what failed is said at once (a pytest plugin).

pytest-timeout raises in the main thread of the test, once; a call of C that never returns does not
notice, and a teardown that hangs after the limit is not watched. So each phase has a second limit,
kept by the interpreter's own watchdog, a thread of C: it prints every thread's stack and ends the
process. The run then says which test that was and starts another worker (`workers`).

A run that is ended from outside prints no summary, therefore a failure has its line when it comes.
"""

import faulthandler
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

TELLER = "teller"
GRACE_SECONDS = 30.0  # beyond the limit of pytest-timeout


def limit_seconds(item: pytest.Item) -> float:
    """How long one phase of a test may last at most."""
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0] if marker else item.config.getini("timeout") or 0) + GRACE_SECONDS


@contextmanager
def watched(item: pytest.Item) -> Iterator[None]:
    """Ends this process if the phase outlasts its limit."""
    # The duplicate of stderr that pytest keeps: what a test prints is captured meanwhile.
    stderr = item.config.stash[fault_handler_stderr_fd_key]
    faulthandler.dump_traceback_later(limit_seconds(item), file=stderr, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    with watched(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with watched(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    with watched(item):
        return (yield)


class Teller:
    """Names each failure on the terminal as it comes."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self.terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            reason = report.longreprtext.strip().rpartition("\n")[2]
            self.terminal.ensure_newline()
            self.terminal.write_line(f"{report.nodeid} failed: {reason}")


@pytest.hookimpl(trylast=True)  # after the terminal has come
def pytest_configure(config: pytest.Config) -> None:
    """Lets the process that has the terminal tell."""
    terminal = config.pluginmanager.getplugin("terminalreporter")
    if isinstance(terminal, pytest.TerminalReporter):
        config.pluginmanager.register(Teller(terminal), TELLER)
