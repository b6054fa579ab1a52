"""Whose turn it is: threads of a world, of which one runs at a time, as a seed says.

A thread is a greenlet. It gives its turn away where it waits, and at some of its points: a lock
that it takes, a file that it changes, a call that it makes. Then the seed picks another that can go
on, and at some points has a thread lose its processor for a while. Where all wait, time jumps to
the first that wakes. What runs takes no time.

Threads belong to processes. A process that is killed runs no further: each of its threads ends at
its next turn by `Killed`, and what it would still do while it ends (clean-up) reaches nobody.

Everything here runs in one thread of Python.
"""

import hashlib
import heapq
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from greenlet import getcurrent, greenlet

#: This part of all points gives the turn away, this one takes the processor away.
_SWITCHES, _LATE = 1 / 4, 1 / 400
_LATE_S = (0.001, 0.02, 0.3)


class Killed(BaseException):
    """The process was killed here; nothing of the agent catches it."""


class DeadlockError(AssertionError):
    """All threads wait, and nothing will wake them."""


@dataclass(eq=False)
class Process:
    """What lives and dies together.

    Attributes:
        ends: called when it has been killed, or has ended: what the kernel does then.
    """

    name: str
    is_dead: bool = False
    threads: list["Turn"] = field(default_factory=list)
    ends: list[Callable[[], None]] = field(default_factory=list)


@dataclass(eq=False)
class Turn:
    """A thread.

    Attributes:
        is_ending: it was killed and unwinds; its waits are over at once.
        failure: what ended it, None where nothing did.
    """

    number: int
    name: str
    process: Process
    greenlet: Any = None
    has_ended: bool = False
    is_ending: bool = False
    is_unwound: bool = False  # by another
    failure: BaseException | None = None
    waits: int = 0  # how often it has waited; tells an old alarm from a present one
    is_waiting: bool = False
    was_woken: bool = False
    joined_by: list["Turn"] = field(default_factory=list)


class Turns:
    """All threads of a world; whoever makes it becomes the first of them.

    Attributes:
        now_s: seconds of the world's monotonic clock.
        chance: of this world; nothing in it may use another.
        trace: of every turn, so that two lives can be told apart.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now_s = 1000.0
        self.trace = hashlib.blake2b(digest_size=8)
        self._numbers = count()
        self._ready: list[Turn] = []
        self._alarms: list[tuple[float, int, Turn, int]] = []
        self.test = Process("test")
        self.current = self._root = Turn(next(self._numbers), "test", self.test, getcurrent())
        self.is_switching = True

    # ---- threads -----------------------------------------------------------------------------

    def begin(self, process: Process, work: Callable[[], object], name: str) -> Turn:
        """Starts a thread."""
        turn = Turn(next(self._numbers), name, process)
        turn.greenlet = greenlet(lambda *_: self._live(turn, work), parent=self._root.greenlet)
        process.threads.append(turn)
        self._ready.append(turn)
        return turn

    def _live(self, turn: Turn, work: Callable[[], object]) -> None:
        try:
            if not turn.process.is_dead:
                work()
        except Killed:
            pass
        except BaseException as error:
            turn.failure = error
        turn.has_ended = True
        turn.process.threads.remove(turn)
        for each in turn.joined_by:
            self.wake(each)
        if turn.is_unwound:
            return  # to `_unwind`
        self.current = following = self._next()
        turn.greenlet.parent = following.greenlet  # a greenlet that ends goes on in its parent

    def join(self, turn: Turn, timeout_s: float | None = None) -> None:
        """Waits until a thread has ended."""
        until_s = None if timeout_s is None else self.now_s + timeout_s
        while not turn.has_ended and (until_s is None or self.now_s < until_s):
            turn.joined_by.append(self.current)
            self.wait(until_s)

    def kill(self, process: Process) -> None:
        """Ends a process at once; where it is the caller's own, does not return."""
        if process.is_dead:
            return
        process.is_dead = True
        mine = self.current.process is process
        for turn in list(process.threads):
            if turn is not self.current:
                self._unwind(turn)
        for end in process.ends:
            end()
        if mine:
            self.current.is_ending = True
            raise Killed

    def _unwind(self, turn: Turn) -> None:
        """Has a thread of a dead process end now, before anybody else goes on."""
        turn.is_ending = turn.is_unwound = True
        before, self.current = self.current, turn
        if turn.greenlet:  # else it has not begun
            turn.greenlet.parent = getcurrent()
            with self._alone():
                turn.greenlet.throw(Killed)
        self.current = before
        if not turn.has_ended:
            turn.has_ended = True
            turn.process.threads.remove(turn)

    # ---- turns -------------------------------------------------------------------------------

    def point(self, *what: object) -> None:
        """Another thread may go on here."""
        turn = self.current
        if turn.is_ending or not self.is_switching:
            return
        if turn.process.is_dead:
            turn.is_ending = True
            raise Killed
        met = self.chance.random()
        if met < _LATE:
            self.wait(self.now_s + self.chance.choice(_LATE_S))
        elif self._ready and met < _LATE + _SWITCHES:
            self._ready.append(turn)
            self._switch()

    def wait(self, until_s: float | None = None) -> bool:
        """Waits to be woken, or for a time; returns whether it was woken."""
        turn = self.current
        if turn.is_ending:
            raise Killed
        turn.waits += 1
        turn.is_waiting, turn.was_woken = True, False
        if until_s is not None:
            heapq.heappush(self._alarms, (until_s, turn.number, turn, turn.waits))
        self._switch()
        return turn.was_woken

    def sleep(self, seconds: float) -> None:
        """Lets time pass."""
        if not self.current.is_ending:
            self.wait(self.now_s + max(0.0, seconds))

    def wake(self, turn: Turn) -> None:
        """Has a thread go on that waits."""
        if turn.is_waiting and not turn.has_ended:
            turn.is_waiting, turn.was_woken = False, True
            self._ready.append(turn)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else goes on within this."""
        before, self.is_switching = self.is_switching, False
        try:
            yield
        finally:
            self.is_switching = before

    def _switch(self) -> None:
        turn = self.current
        following = self._next()
        if following is not turn:
            self.current = following
            following.greenlet.switch()
        if turn.process.is_dead and not turn.is_ending:
            turn.is_ending = True
            raise Killed

    def _next(self) -> Turn:
        ready = self._ready
        while not ready:
            self._let_time_pass()
        number = int(self.chance.random() * len(ready)) if len(ready) > 1 else 0
        ready[number], ready[-1] = ready[-1], ready[number]
        turn = ready.pop()
        if turn.has_ended:
            return self._next()
        self.trace.update(b"%d %.6f;" % (turn.number, self.now_s))
        return turn

    def close(self) -> None:
        """Ends all threads that are left."""
        self.test.is_dead = True
        for turn in list(self.test.threads):
            self._unwind(turn)

    def _let_time_pass(self) -> None:
        if not self._alarms:
            raise DeadlockError("all threads wait for each other")
        at_s, _, turn, waits = heapq.heappop(self._alarms)
        if turn.is_waiting and turn.waits == waits and not turn.has_ended:
            self.now_s = max(self.now_s, at_s)
            turn.is_waiting = False
            self._ready.append(turn)
