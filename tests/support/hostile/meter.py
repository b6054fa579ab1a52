"""``python -m support.hostile.meter FILE …``: the agent, which notes how long its lock was held.

What it notes does not depend on how busy the machine is. It is the processor's time that the thread
took, and its waits for what is not the agent. A wait does not count while other threads of the
agent ran, or were ready to run: it may be for one of them, since Python runs one at a time.
"""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deviceplugin import runtime
from support.node.in_process import hurry

_TASKS = "/proc/self/task"
#: Locks that are made in these modules are the agent's lock.
_MEASURED = ("deviceplugin.store.node_state",)
_NOTED_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment of a thread.

    Attributes:
        at_ns: when it is.
        run_ns: for how long the thread has run.
        busy_ns: for how long all threads of the agent have run.
        late_ns: for how long each of them was ready to run and had no processor.
    """

    at_ns: int
    run_ns: int
    busy_ns: int
    late_ns: dict[str, int]


class Clock:
    """What a thread spends, on a machine that is as quiet as it likes."""

    def __init__(self) -> None:
        """Has looked at no thread yet."""
        self._files: dict[str, int] = {}

    def now(self) -> Moment:
        """Returns this moment of the calling thread."""
        late_ns = {}
        for name in os.listdir(_TASKS):
            try:
                file = self._files.get(name) or self._open(name)
                late_ns[name] = int(os.pread(file, 64, 0).split()[1])
            except OSError:  # it has ended
                file = self._files.pop(name, -1)
                if file >= 0:
                    os.close(file)
        return Moment(time.monotonic_ns(), time.thread_time_ns(), time.process_time_ns(), late_ns)

    def since(self, start: Moment) -> tuple[int, int]:
        """Returns for how long the calling thread has worked and waited since then, in ns."""
        now = self.now()
        late_ns = sum(at - start.late_ns.get(name, 0) for name, at in now.late_ns.items())
        waited_ns = now.at_ns - start.at_ns - (now.busy_ns - start.busy_ns) - late_ns
        return now.run_ns - start.run_ns, max(0, waited_ns)

    def _open(self, name: str) -> int:
        self._files[name] = os.open(f"{_TASKS}/{name}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        return self._files[name]


def _where() -> str:
    """Returns which functions of the agent are running, the innermost first."""
    frame, names = sys._getframe(), list[str]()
    while frame.f_back:
        frame = frame.f_back
        if frame.f_globals["__name__"].startswith("deviceplugin."):
            names.append(f"{frame.f_globals['__name__']}:{frame.f_lineno}")
    return "<".join(names[:4])


class Notes:
    """A file with a line for each measurement."""

    def __init__(self, path: Path) -> None:
        """Opens or makes it."""
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def add(self, what: str, spent_ns: tuple[int, int]) -> None:
        """Adds what was worked and waited."""
        worked_ns, waited_ns = spent_ns
        os.write(self._file, f"{what} {worked_ns} {waited_ns} {_where()}\n".encode())


class MeasuredLock:
    """A lock that notes for how long it was held."""

    def __init__(self, lock: runtime.Lock, clock: Clock, notes: Notes) -> None:
        self._lock, self._clock, self._notes = lock, clock, notes
        self._since = clock.now()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        taken = self._lock.acquire(blocking, timeout)
        if taken:
            self._since = self._clock.now()
        return taken

    def release(self) -> None:
        spent_ns = self._clock.since(self._since)
        self._lock.release()
        if sum(spent_ns) > _NOTED_NS:
            self._notes.add("held", spent_ns)

    def locked(self) -> bool:
        return self._lock.locked()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class MeasuredRuntime(runtime.Runtime):
    """Python's own, with the agent's lock measured."""

    def __init__(self, clock: Clock, notes: Notes) -> None:
        self._clock, self._notes = clock, notes

    def lock(self) -> runtime.Lock:
        made = super().lock()
        caller = sys._getframe(2).f_globals["__name__"]
        return MeasuredLock(made, self._clock, self._notes) if caller in _MEASURED else made


def _measured(call: Callable[..., Any], clock: Clock, notes: Notes) -> Callable[..., Any]:
    def measure(*arguments: Any) -> Any:
        start = clock.now()
        try:
            return call(*arguments)
        finally:
            notes.add("allocate", clock.since(start))

    return measure


def main() -> None:
    """Runs the agent with the rest of the arguments."""
    from deviceplugin.__main__ import main as agent
    from deviceplugin.core.admission import Admission

    clock, notes = Clock(), Notes(Path(sys.argv.pop(1)))
    hurry()
    Admission.allocate = _measured(Admission.allocate, clock, notes)  # type: ignore[method-assign]
    with runtime.use(MeasuredRuntime(clock, notes)):
        agent()


if __name__ == "__main__":
    main()
