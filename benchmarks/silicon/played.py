"""Measures launch-bound programs: loops of short kernels, and real programs from their traces.

All are scripts of native/trace_client.c. What they get done depends on the host, so programs that
run together are measured bare and held in the same round, and told as a part of it. Each wants a
processor all the time: what others take of it is left out of its time.
"""

import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from libvgpu.errors import VgpuError

from ..clients import read_line, started, tell
from ..figure import Measurement
from ..gpu import Gpu
from ..nulldriver import built_client
from ..player import PLAYER, Played, PlayedProgram, held_up, read_answer
from ..program_plans import Loop, plan_of, silicon_steps
from ..repeats import say
from ..trace_plan import script
from .bench import Window
from .holding import Hold, held
from .played_rows import (
    ALONE_PERCENT,
    PAIR_PERCENT,
    Base,
    PlayedRow,
)

_START_SECONDS, _ANSWER_SECONDS = 60.0, 60.0
#: More of it is not made good by leaving it out.
_MOST_CPU_WAIT_PERCENT, _MOST_WINDOWS = 10.0, 3


class Players:
    """A GPU and the player's program; made by `open_players`."""

    def __init__(self, gpu: Gpu, folder: Path, program: Path, rounds_per_ms: int) -> None:
        self.gpu, self.rounds_per_ms = gpu, rounds_per_ms
        self._folder, self._program = folder, program
        self._scripts: dict[Loop | str, tuple[Path, float]] = {}

    def silicon_steps(self, program: Loop | str) -> float:
        """Returns how many steps a second a program did on silicon, bare and alone."""
        return self._script(program)[1]

    def _script(self, program: Loop | str) -> tuple[Path, float]:
        if program not in self._scripts:
            plan = plan_of(program)
            path = self._folder / f"{len(self._scripts)}.script"
            path.write_text(script(plan))
            self._scripts[program] = path, silicon_steps(plan)
        return self._scripts[program]

    def play(self, programs: Sequence[Loop | str], hold: Hold, window: Window) -> list[Played]:
        """Plays programs together and returns what each did.

        A window in which the host's other programs took much of the processor is played again, and
        the one counts in which they took least.

        Raises:
            VgpuError: a player fails, or a trace is damaged.
        """

        def worst(windows: Sequence[Played]) -> float:
            return max(each.cpu_wait_percent for each in windows)

        best = self.play_once(programs, hold, window)
        for _ in range(_MOST_WINDOWS - 1):
            if worst(best) <= _MOST_CPU_WAIT_PERCENT:
                break
            best = min(best, self.play_once(programs, hold, window), key=worst)
        return best

    def play_once(self, programs: Sequence[Loop | str], hold: Hold, window: Window) -> list[Played]:
        """Does so in one window, whatever the host does."""
        percents = [PAIR_PERCENT if len(programs) > 1 else ALONE_PERCENT] * len(programs)
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=self._folder)))
            environments = stack.enter_context(held(self.gpu, folder, percents, hold, {}))
            processes = []
            for program, environment in zip(programs, environments, strict=True):
                path, _ = self._script(program)
                played = PlayedProgram(str(program), path, window.warm_up, window.length)
                command = [
                    str(self._program),
                    *played.arguments(self.gpu.memory_bytes_per_second),
                    f"rounds_per_ms={self.rounds_per_ms}",
                ]
                processes.append(stack.enter_context(started(command, environment, _START_SECONDS)))
            for process in processes:
                tell(process, "go")
            patience = window.warm_up + window.length + _ANSWER_SECONDS
            return [_answer(process, patience) for process in processes]


def _answer(process: "subprocess.Popen[str]", timeout_seconds: float) -> Played:
    line = read_line(process, timeout_seconds)
    if not line:
        status = process.poll()
        what = "does not answer" if status is None else f"ended with status {status}"
        raise VgpuError(f"a player {what}")
    return read_answer(line)


def measure_played(
    players: Players, rows: Sequence[PlayedRow], window: Window, rounds: int
) -> list[Measurement]:
    """Measures rows; one that fails says why and the others go on."""
    values: dict[PlayedRow, list[list[float]]] = {row: [] for row in rows}
    windows: dict[PlayedRow, list[Played]] = {row: [] for row in rows}
    failures: dict[PlayedRow, str] = {}
    for _ in range(rounds):
        bare: dict[tuple[Loop | str, ...], list[Played]] = {}
        for row in rows:
            if row in failures:
                continue
            say(row.name)
            try:
                base, played = _round(players, row, window, bare)
            except VgpuError as error:
                failures[row] = error.message
                continue
            rates = [each.steps_per_own_second for each in played]
            values[row].append([100 * rate / of for rate, of in zip(rates, base, strict=True)])
            windows[row] += played
    found: list[Measurement] = []
    for row in rows:
        if row in failures:
            found.append(_measurement(row, players.gpu.title, "", None, 0.0, failures[row]))
        else:
            found += judged(row, values[row], windows[row], players.gpu.title)
    return found


def _round(
    players: Players,
    row: PlayedRow,
    window: Window,
    bare: dict[tuple[Loop | str, ...], list[Played]],
) -> tuple[list[float], list[Played]]:
    """Returns what a row's programs are held against, in steps a second, and what they did."""

    def bare_of(*programs: Loop | str) -> list[Played]:
        if programs not in bare:
            bare[programs] = players.play(programs, Hold.BARE, window)
        return bare[programs]

    if row.base is Base.SILICON:
        base = [players.silicon_steps(program) for program in row.programs]
    elif row.base is Base.ALONE:
        base = [bare_of(program)[0].steps_per_own_second for program in row.programs]
    else:
        base = [each.steps_per_own_second for each in bare_of(*row.programs)]
    if row.hold is Hold.BARE:
        return base, bare_of(*row.programs)
    return base, players.play(row.programs, row.hold, window)


def judged(
    row: PlayedRow, rounds: Sequence[Sequence[float]], windows: Sequence[Played], subject: str
) -> list[Measurement]:
    """Returns a row's measurements, each with silicon's value and tolerance as its bar.

    Args:
        row: what was measured.
        rounds: per round the percentage of each program.
        windows: of all rounds, for how busy the machine was.
        subject: the GPU.
    """
    medians = [statistics.median(of) for of in zip(*rounds, strict=True)]
    names = [""] if len(medians) == 1 else [f", program {n + 1}" for n in range(len(medians))]
    note = "; ".join(filter(None, (row.source, held_up(windows))))
    return [
        _measurement(row, subject, name, round(value, 2), silicon, note)
        for name, value, silicon in zip(names, medians, row.silicon, strict=True)
    ]


def _measurement(
    row: PlayedRow, subject: str, which: str, value: float | None, silicon: float, note: str
) -> Measurement:
    if value is None:
        return Measurement(row.name, subject, row.base.value, "%", None, note=note)
    if row.hold is not Hold.BARE:
        return Measurement(f"{row.name}{which}", subject, row.base.value, "%", value, note=note,
                           history=silicon, least=row.least)  # fmt: skip
    return Measurement(f"{row.name}{which}", subject, row.base.value, "%", value, note=note,
                       silicon=silicon, tolerance=row.points)  # fmt: skip


@contextmanager
def open_players(gpu: Gpu, rounds_per_ms: int) -> Iterator[Players]:
    """Builds the player against the GPU's driver.

    Args:
        gpu: where it runs.
        rounds_per_ms: of the GPU's kernels, as `spin_rate` measures.

    Raises:
        VgpuError: there is no compiler, or it fails.
    """
    with built_client(gpu.driver, *PLAYER) as program:
        yield Players(gpu, program.parent, program, rounds_per_ms)
