"""Programs that native/trace_client.c plays from a script, and what it says of them.

A script is made of a trace by trace_plan.py; the player is the same program on every GPU.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from libvgpu.errors import VgpuError

from . import own_time

#: The player's sources, as `benchmarks.nulldriver.build_client` takes them.
PLAYER = ("trace_client", "trace_driver", "trace_script")
#: More of it is told, since steps are too few then.
_MOST_CPU_WAIT_PERCENT = 1.0


@dataclass(frozen=True, slots=True)
class PlayedProgram:
    """What a process does: a program from its script.

    Attributes:
        name: of the program.
        path: of its script.
        warm_up_seconds: before it is measured.
        seconds: of the measured time.
    """

    name: str
    path: Path
    warm_up_seconds: float
    seconds: float

    def arguments(self, memory_bytes_per_second: int) -> list[str]:
        """Returns the player's arguments, which are the same on every GPU."""
        return [
            f"script={self.path}",
            f"warm_up={self.warm_up_seconds}",
            f"seconds={self.seconds}",
            *(["own_time=1"] if own_time.is_on() else []),
        ]


@dataclass(frozen=True, slots=True)
class Played:
    """What one program did in one window.

    Attributes:
        steps_per_second: of the program.
        p99_ms: host time of a step that one in a hundred takes at least.
        cpu_wait_percent: of the time in which other programs had the player's processor.
    """

    steps_per_second: float
    p99_ms: float
    cpu_wait_percent: float

    @property
    def steps_per_own_second(self) -> float:
        """Steps a second of the time in which the player had a processor when it wanted one."""
        return self.steps_per_second / (1 - min(self.cpu_wait_percent, 99.0) / 100)


def read_answer(line: str) -> Played:
    """Returns what a player's line says.

    Raises:
        VgpuError: it is not one of a player.
    """
    try:
        values = json.loads(line)
        keys = ("steps_per_second", "step_p99_ms", "cpu_wait_percent")
        return Played(*(float(values[key]) for key in keys))
    except (ValueError, KeyError, TypeError):
        raise VgpuError(f"the player said {line.strip()!r}, must be its line of JSON") from None


def held_up(windows: Sequence[Played]) -> str:
    """Returns words for how busy the machine was, empty where that hardly matters."""
    worst = max(window.cpu_wait_percent for window in windows)
    if worst < _MOST_CPU_WAIT_PERCENT:
        return ""
    return f"other programs had the processor for up to {worst:.0f} % of the time"
