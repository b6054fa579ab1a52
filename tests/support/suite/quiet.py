"""Tells a wrong result from a disturbed measurement (a pytest plugin).

A test marked ``timing`` needs the processor when it asks for it. What others took of it is known:
the time that the whole machine was busy or had stolen from it, less what this run and the children
it waited for used. What a hypervisor stole weighs more, since it stops all threads of a core for
milliseconds; a machine that stands still without a word is seen, too (`stalls`). A failed
measurement counts only if little was taken; else it is made again, twice at most, when the machine
is quiet or patience is at its end, and a warning says so.

Where all measurements failed and all were disturbed, nothing is known: the test is skipped as not
measured, with what others took. A few such tests are an unlucky day; more than a quarter of those
that measure, and more than `NOT_MEASURED_ALLOWED`, fail the run, or a busy machine would hide
everything. Patience is one budget for the whole run, so that a machine that is never quiet does not
stretch it.

Most of these tests use a fifth of the processor. So where there are several workers, each
first runs its test next to those of the others: one that passes there passes on a quiet machine,
too. One that fails there has shown nothing, and all of the above begins, with the other workers
waiting (`Neighbours`). A test that cannot pass next to others is marked ``timing(alone=True)``.
"""

import contextlib
import fcntl
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from _pytest.runner import runtestprotocol

from support import warm
from support.suite.stalls import StallWatch
from support.suite.workers import SHARED

MOST_FOREIGN_CORES = 0.25  # of one core; a hidden second program takes 1.0
MOST_STOLEN_CORES = 0.02
MOST_STALL_SECONDS = 0.02
MOST_MEASUREMENTS = 3
SAMPLE_SECONDS = 1.0
PATIENCE_SECONDS = 60.0
PATIENCE_OF_RUN_SECONDS = 240.0
NOT_MEASURED_ALLOWED = 3
NOT_MEASURED_PART = 0.25
_NOT_MEASURED = "not measured: "


class DisturbedMeasurement(pytest.PytestWarning):
    """A failed measurement was made again, since others had taken the processor."""


@dataclass(frozen=True)
class Reading:
    """Processor seconds up to one moment."""

    at: float
    busy: float
    ours: float
    stolen: float

    @classmethod
    def now(cls) -> "Reading":
        times = psutil.cpu_times()
        busy = times.user + times.nice + times.system + times.irq + times.softirq + times.steal
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        ours = sum(each.ru_utime + each.ru_stime for each in used) + warm.used_seconds()
        return cls(time.monotonic(), busy, ours, times.steal)

    def foreign_cores_since(self, earlier: "Reading") -> float:
        """Returns how many cores others kept busy on average between two readings."""
        elapsed = max(self.at - earlier.at, 1e-3)
        return (self.busy - earlier.busy - (self.ours - earlier.ours)) / elapsed

    def stolen_cores_since(self, earlier: "Reading") -> float:
        """Returns how many cores the hypervisor gave to others meanwhile."""
        return (self.stolen - earlier.stolen) / max(self.at - earlier.at, 1e-3)


def disturbance(before: Reading, stall_seconds: float) -> str:
    """Returns what others have had since, as text; empty when that was little.

    Args:
        stall_seconds: for how long the machine has stood still at a stretch since.
    """
    now = Reading.now()
    cores, stolen = now.foreign_cores_since(before), now.stolen_cores_since(before)
    if (
        cores <= MOST_FOREIGN_CORES
        and stolen <= MOST_STOLEN_CORES
        and stall_seconds <= MOST_STALL_SECONDS
    ):
        return ""
    return f"{cores:.1f} cores ({stolen:.2f} stolen, {1000 * stall_seconds:.0f} ms at a stretch)"


@dataclass
class Run:
    """What is known of this run so far.

    Attributes:
        measured: tests that measure and were run.
        not_measured: names of those that could not be measured.
        waited_seconds: spent on waiting for a quiet machine.
    """

    measured: int = 0
    not_measured: list[str] = field(default_factory=list)
    waited_seconds: float = 0.0

    def hides_too_much(self) -> bool:
        """Returns whether too few measurements count for the run to say anything."""
        allowed = max(NOT_MEASURED_ALLOWED, NOT_MEASURED_PART * self.measured)
        return len(self.not_measured) > allowed


RUN = Run()


class Neighbours:
    """Locks by which the workers of a run measure next to each other, or one of them alone.

    Who wants to be alone waits in the gate, which everyone passes, so that no stream of others
    keeps it waiting.
    """

    def __init__(self, folder: Path) -> None:
        self._gate, self._room = folder / "timing-gate", folder / "timing-room"

    @contextlib.contextmanager
    def _inside(self, how: int) -> Iterator[None]:
        with self._gate.open("a") as gate, self._room.open("a") as room:
            fcntl.flock(gate, fcntl.LOCK_EX)
            fcntl.flock(room, how)
            fcntl.flock(gate, fcntl.LOCK_UN)
            yield

    def together(self) -> contextlib.AbstractContextManager[None]:
        """Next to others who are together."""
        return self._inside(fcntl.LOCK_SH)

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """While all others wait."""
        return self._inside(fcntl.LOCK_EX)


def neighbours_of(config: pytest.Config) -> Neighbours | None:
    """Returns the locks that the workers of this run share; None where it has no workers."""
    shared = config.stash.get(SHARED, None)
    return None if shared is None else Neighbours(shared)


def wait_until_quiet() -> None:
    """Returns once a second passes in which others leave the processor alone, or patience ends."""
    began = time.monotonic()
    patience = min(PATIENCE_SECONDS, PATIENCE_OF_RUN_SECONDS - RUN.waited_seconds)
    while time.monotonic() < began + patience:
        before = Reading.now()
        with StallWatch() as stalls:
            time.sleep(SAMPLE_SECONDS)
        if not disturbance(before, stalls.longest_seconds):
            break
    RUN.waited_seconds += time.monotonic() - began


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Runs a ``timing`` test; again where its failure may be that of its neighbours."""
    marker = item.get_closest_marker("timing")
    if marker is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    neighbours = neighbours_of(item.config)
    if neighbours is None:
        reports = measure(item, nextitem)
    else:
        reports = []
        if not marker.kwargs.get("alone"):
            with neighbours.together():
                reports = runtestprotocol(item, nextitem=nextitem, log=False)
        if not reports or any(report.failed for report in reports):
            with neighbours.alone():
                item._initrequest()  # type: ignore[attr-defined]  # its fixtures begin again
                reports = measure(item, nextitem)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def measure(item: pytest.Item, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
    """Runs a test while nothing else of ours runs, until its result counts."""
    every: list[str] = []  # what others had at each measurement
    for measurement in range(MOST_MEASUREMENTS):
        before = Reading.now()
        with StallWatch() as stalls:
            reports = runtestprotocol(item, nextitem=nextitem, log=False)
        had = disturbance(before, stalls.longest_seconds)
        every.append(had)
        is_last = measurement == MOST_MEASUREMENTS - 1
        if is_last or not had or not any(report.failed for report in reports):
            break
        words = f"{item.nodeid} failed while others had {had}, and was measured again"
        item.warn(DisturbedMeasurement(words))
        wait_until_quiet()
        item._initrequest()  # type: ignore[attr-defined]  # its fixtures begin again
    if len(every) == MOST_MEASUREMENTS and all(every):
        _skip_failed(item, reports, f"{_NOT_MEASURED}others had {', '.join(every)}")
    return reports


def _skip_failed(item: pytest.Item, reports: list[pytest.TestReport], words: str) -> None:
    """Makes the failure of the test's call a skip; one of its set-up or its end stays."""
    for report in reports:
        if report.when == "call" and report.failed:
            path, line, _ = item.location
            report.outcome = "skipped"
            report.longrepr = (path, (line or 0) + 1, words)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Counts, from what the workers report where there are some."""
    if "timing" in report.keywords and report.when == "call":
        RUN.measured += 1
        if report.skipped and isinstance(report.longrepr, tuple):
            RUN.not_measured += [report.nodeid] * report.longrepr[2].startswith(_NOT_MEASURED)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails a run of which too little could be measured."""
    if RUN.hides_too_much() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says why such a run failed."""
    if RUN.hides_too_much():
        terminalreporter.section("not measured", red=True)
        terminalreporter.line(
            f"{len(RUN.not_measured)} of {RUN.measured} tests that measure time could not be "
            "measured, since others had the processor: run them on a quiet machine"
        )
