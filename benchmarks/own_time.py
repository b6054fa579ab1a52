"""Programs in a time of their own, which jumps where all their threads wait.

``native/virtual_time`` takes over the clock and the waits of a program and of all that it starts.
So players, shim, arbiter and simulated GPU read one clock. A second there takes as long as what is
done in it, and what comes out is the same on every machine. A figure that only the simulated GPU
decides is taken so: the command runs itself again (`run`).
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from libvgpu.errors import VgpuError

from .nulldriver import build_preload

PARTS = (
    *("interpose_programs", "real", "turn"),
    *(f"interpose_{kind}" for kind in ("clock", "locks", "poll", "files")),
)
#: Threads that spin side by side hand on their turn every so often, rather than at each look.
SLACK_NS = 150
_FILE, _PRELOAD = "VIRTUAL_TIME_FILE", "LD_PRELOAD"
#: The same addresses each time: what the shim knows of a kernel lies at a hash of one.
SAME_ADDRESSES = ("setarch", "-R")


def is_on() -> bool:
    """Returns whether this program's time is its own."""
    return _FILE in os.environ


def variables(library: Path, time_file: Path, chance: str = f"0 0 0 {SLACK_NS}") -> dict[str, str]:
    """Returns what makes the time of a program its own.

    Args:
        library: as built of `PARTS`.
        time_file: made by the first program, for all that take part.
        chance: how the world is made; ``native/virtual_time/turn.h`` says.
    """
    return {
        _PRELOAD: str(library),
        _FILE: str(time_file),
        "VIRTUAL_TIME_CHANCE": chance,
        "PYTHONHASHSEED": "0",
    }


def passed_on(preload: Path | None) -> dict[str, str]:
    """Returns the variables of a program that this one starts.

    Args:
        preload: the library under which it runs, or None.
    """
    libraries = [os.environ.get(_PRELOAD, "") if is_on() else "", str(preload or "")]
    found = {name: value for name, value in os.environ.items() if name.startswith("VIRTUAL_TIME_")}
    preloads = " ".join(filter(None, libraries))
    return {**found, **({_PRELOAD: preloads} if preloads else {})}


def run(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs ``python -m benchmarks`` in a time of its own, and returns its exit status.

    Args:
        arguments: behind ``benchmarks``.
        environment: variables besides ours.

    Raises:
        VgpuError: there is no compiler, or no setarch.
    """
    with tempfile.TemporaryDirectory(prefix="vgpu-bench-") as name:
        folder = Path(name)
        library = build_preload("virtual_time", folder, *PARTS)
        command = [*SAME_ADDRESSES, sys.executable, "-m", "benchmarks", *arguments]
        try:
            return subprocess.call(
                command, env={**os.environ, **environment, **variables(library, folder / "time")}
            )
        except FileNotFoundError as error:
            raise VgpuError(f"{error.filename} is not on PATH") from None
