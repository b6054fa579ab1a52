"""How long the GPU works for one process before it goes on to the next, and what that costs."""

import os
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from libvgpu.errors import VgpuError

from ..clients import read_line, started, tell
from ..figure import Measurement
from ..gpu import Gpu
from ..nulldriver import built_client
from ..repeats import say
from .bench import Window

_START_SECONDS, _ANSWER_SECONDS = 60.0, 30.0
_SOURCE = "first run on an H100, 2026-11-22"
#: Turns of a window below this tell nothing.
_LEAST_TURNS = 20


@dataclass(frozen=True, slots=True)
class TurnRow:
    """Processes that want all of the GPU, and what was seen of their turns on silicon.

    Attributes:
        processes: how many.
        kernel_us: length of their kernels.
        turn_us: how long the GPU works for one.
        lost_us: what passes at each switch.
    """

    processes: int
    kernel_us: int
    turn_us: float = 2091.0
    lost_us: float = 151.0

    @property
    def name(self) -> str:
        """As it is shown."""
        return f"{self.processes} processes with queues of {self.kernel_us} us kernels"


TURN_ROWS = (TurnRow(2, 20), TurnRow(2, 100), TurnRow(3, 100))
_TURN_OFF_BY, _LOST_OFF_BY = 0.02, 0.1


@dataclass(frozen=True, slots=True)
class Turns:
    """What one process saw of its turns; ns, means of the window."""

    count: int
    turn_ns: float
    period_ns: float


def read_turns(line: str) -> Turns:
    """Returns what a client's line says.

    Raises:
        VgpuError: it is not one of a client, or of too few turns.
    """
    words = line.split()
    if len(words) != 6 or words[::2] != ["turns", "turn_ns", "period_ns"]:
        raise VgpuError(f"turns_client said {line.strip()!r}, must be turns, turn_ns and period_ns")
    turns = Turns(int(words[1]), float(words[3]), float(words[5]))
    if turns.count < _LEAST_TURNS:
        raise VgpuError(
            f"only {turns.count} turns were seen, must be {_LEAST_TURNS}: is the GPU shared by "
            "time slices?"
        )
    return turns


def judged(row: TurnRow, found: Sequence[Turns], subject: str) -> list[Measurement]:
    """Returns turn and loss of a row, each with silicon's value as its bar.

    Args:
        row: what was measured.
        found: of each process.
        subject: the GPU.
    """
    turn_us = statistics.mean(each.turn_ns for each in found) / 1e3
    period_us = statistics.mean(each.period_ns for each in found) / 1e3
    lost_us = period_us / row.processes - turn_us
    return [
        Measurement(row.name, subject, quantity, "us", round(value, 1), note=_SOURCE,
                    silicon=silicon, tolerance=round(off_by * silicon, 1))
        for quantity, value, silicon, off_by in (
            ("a turn", turn_us, row.turn_us, _TURN_OFF_BY),
            ("lost at a switch", lost_us, row.lost_us, _LOST_OFF_BY),
        )
    ]  # fmt: skip


def measure_turns(
    gpu: Gpu, rounds_per_ms: int, window: Window, rows: Sequence[TurnRow] = TURN_ROWS
) -> list[Measurement]:
    """Measures rows; one that fails says why and the others go on.

    Args:
        gpu: where, with nobody else on it.
        rounds_per_ms: of its kernels, as `spin_rate` measures.
        window: how long.
        rows: which ones.

    Raises:
        VgpuError: there is no compiler, or it fails.
    """
    found: list[Measurement] = []
    with built_client(gpu.driver, "turns_client") as program:
        for row in rows:
            say(row.name)
            try:
                found += judged(row, _turns(gpu, program, rounds_per_ms, row, window), gpu.title)
            except VgpuError as error:
                found.append(
                    Measurement(row.name, gpu.title, "a turn", "us", None, note=error.message)
                )
    return found


def _turns(
    gpu: Gpu, program: Path, rounds_per_ms: int, row: TurnRow, window: Window
) -> list[Turns]:
    command = [
        str(program),
        f"kernel_ns={1000 * row.kernel_us}",
        f"rounds_per_ms={rounds_per_ms}",
        f"warm_up_ms={round(1000 * window.warm_up)}",
        f"ms={round(1000 * window.length)}",
    ]
    environment = gpu.environment({"PATH": os.defpath})
    with ExitStack() as stack:
        processes = [
            stack.enter_context(started(command, environment, _START_SECONDS))
            for _ in range(row.processes)
        ]
        for process in processes:
            tell(process, "go")
        seconds = window.warm_up + window.length + _ANSWER_SECONDS
        return [read_turns(read_line(process, seconds)) for process in processes]
