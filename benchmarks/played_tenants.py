"""Played programs as tenants of one simulated GPU: what they did, and what they had of it."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from libvgpu.errors import VgpuError
from libvgpu.limits import ComputeMode

from .player import Played, PlayedProgram, held_up, read_answer
from .stage import Stage
from .tenant_programs import Window, shares

_ANSWER_SECONDS = 60.0
#: Of the measured time the books are looked at for; in the rest a player may end.
_LOOKED_AT = 0.9


@dataclass(frozen=True, slots=True)
class PlayedTenant:
    """One slice with one played program; its weight is its percentage."""

    client: PlayedProgram
    core_percent: int
    mode: ComputeMode = ComputeMode.STRICT
    processes: int = 1


@dataclass(frozen=True, slots=True)
class PlayedWindow:
    """One window of programs that ran together.

    Attributes:
        played: what each did, by its own word.
        books: what each had of the GPU, by the GPU's.
    """

    played: tuple[Played, ...]
    books: Window


@dataclass
class Kept:
    """The rounds of one case: what its programs did, bare and under each subject."""

    bare: list[PlayedWindow] = field(default_factory=list)
    held: dict[str, list[PlayedWindow]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


def play(
    stage: Stage, tenants: Sequence[PlayedTenant], preload: Path | None, *, sampled: bool = False
) -> PlayedWindow:
    """Plays programs together in one window.

    Args:
        stage: of the players.
        tenants: all of the same warm-up and time.
        preload: the library under which they run; None: no slice holds them.
        sampled: look at the books every 50 ms, not only at both ends.

    Raises:
        VgpuError: a player fails.
    """
    with stage.open(tenants, preload) as running:
        for index in range(len(tenants)):
            running.go(index)
        time.sleep(max(tenant.client.warm_up_seconds for tenant in tenants))
        seconds = min(tenant.client.seconds for tenant in tenants)
        looks = running.looks(_LOOKED_AT * seconds, sampled=sampled)
        answers = running.answers(seconds + _ANSWER_SECONDS)
    books = Window(shares(looks[0], looks[-1]), (None,) * len(tenants), looks)
    return PlayedWindow(tuple(map(read_answer, answers)), books)


def note_of(windows: Sequence[Played]) -> str:
    """Returns the note of windows: simulated, and how busy the machine was where that matters."""
    busy = held_up(windows)
    return f"simulated; {busy}" if busy else "simulated"


def play_round(
    stage: Stage,
    kept: Kept,
    tenants: Sequence[PlayedTenant],
    subjects: Mapping[str, Path],
    *,
    sampled: bool = False,
) -> None:
    """Plays programs bare and then under each subject, and keeps it; a failure ends a subject.

    Raises:
        VgpuError: a player fails without any shim.
    """
    kept.bare.append(play(stage, tenants, None, sampled=sampled))
    for subject, preload in subjects.items():
        if subject in kept.failures:
            continue
        try:
            held = play(stage, tenants, preload, sampled=sampled)
        except VgpuError as error:
            kept.failures[subject] = error.message
        else:
            kept.held.setdefault(subject, []).append(held)


def rounds_of(kept: Kept, subject: str) -> list[tuple[PlayedWindow, PlayedWindow]]:
    """Returns what a subject gave, each with what the programs did bare in the same round."""
    return list(zip(kept.held[subject], kept.bare, strict=True))
