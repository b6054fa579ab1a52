"""One run of a target: it is built, looks for inputs for a while, and is told in a line."""

import functools
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from fuzz import building, corpus
from fuzz.branches import Reached, reached
from fuzz.targets import Target
from support import ROOT

CRASHES = corpus.BUILT / "crashes"
#: Of one input; what takes longer, or more memory, is a crash.
_SECONDS_EACH, _MEMORY_MIB = 20, 2048
#: In the gate, whose verdict is not to hang on how fast the machine is.
_SECONDS_EACH_SHORT = 200
_LEAST_PERCENT = 90
_RUNS = re.compile(r"stat::number_of_executed_units: (\d+)")


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a run.

    Attributes:
        executions: None where nothing but the corpus was run.
        crashes: inputs that crash it, with what it said.
    """

    target: Target
    executions: int | None
    seconds: float
    parsers: tuple[Reached, ...]
    crashes: dict[Path, str]

    def line(self) -> str:
        """Returns what is said of it."""
        of, part = self._branches()
        is_guided = self.executions is not None
        how = f"{self.executions} runs in {self.seconds:.0f} s" if is_guided else "corpus only"
        branches = f"{part} % of {of} branches" if of else "branches not measured"
        found = f"{len(self.crashes)} CRASH" if self.crashes else "no crash"
        few = f", fewer than {_LEAST_PERCENT} % OF BRANCHES" if self.reaches_few else ""
        return f"{self.target.name:10} {how:26} {branches:24} {found}{few}"

    @property
    def reaches_few(self) -> bool:
        """Whether too much of the parsers is not reached, where that was measured."""
        of, part = self._branches()
        return of > 0 and part < _LEAST_PERCENT

    def _branches(self) -> tuple[int, int]:
        of = sum(each.branches for each in self.parsers)
        return of, 100 * (of - sum(len(each.missed) for each in self.parsers)) // max(1, of)


def can_be_guided(target: Target) -> bool:
    """Returns whether this machine has what looks for inputs."""
    if target.is_c:
        return building.clang() is not None
    return importlib.util.find_spec("atheris") is not None


def run(target: Target, seconds: int) -> Ran:
    """Runs a target, and measures what it reaches."""
    place = corpus.folder(target.name)
    limits = [f"-max_total_time={seconds}", f"-timeout={_SECONDS_EACH}", "-use_value_profile=1"]
    ran = _looked(target, place, limits if seconds else [])
    is_measured = building.clang() is not None or not target.is_c
    return ran if ran.crashes else _over(ran, place, reached if is_measured else replay)


def run_short(target: Target) -> Ran:
    """Runs a target with the same inputs each time: the committed ones, and those of one seed."""
    with tempfile.TemporaryDirectory() as above:
        place = corpus.folder(target.name, Path(above))
        new, listed = Path(above, "new"), Path(above, "all")
        new.mkdir()
        # In this order, whatever that of the folder is.
        listed.write_text(",".join(map(str, sorted(place.iterdir()))))
        limits = [f"-runs={target.short_runs}", "-seed=1", f"-timeout={_SECONDS_EACH_SHORT}"]
        ran = _looked(target, new, [*limits, f"-seed_inputs=@{listed}"])
        return _over(ran, place, replay) if ran.executions is None else ran


def _over(ran: Ran, place: Path, how: Callable[[Target, list[Path]], list[Reached]]) -> Ran:
    try:
        return replace(ran, parsers=tuple(how(ran.target, sorted(place.iterdir()))))
    except subprocess.CalledProcessError as error:
        return replace(ran, crashes={place: f"the corpus crashes it: status {error.returncode}"})


def _looked(target: Target, place: Path, limits: list[str]) -> Ran:
    crashes: dict[Path, str] = {}
    executions, began_s = None, time.monotonic()
    CRASHES.mkdir(parents=True, exist_ok=True)
    if limits and can_be_guided(target):
        before = set(CRASHES.iterdir())
        said = _guided(target, [*limits, *_options(target), str(place)])
        found = _RUNS.search(said)
        executions = int(found[1]) if found else 0
        new = set(CRASHES.iterdir()) - before
        crashes = {path: said for path in new if path.name.startswith(f"{target.name}-")}
        if found is None and not crashes:
            crashes[place] = said
    return Ran(target, executions, time.monotonic() - began_s, (), crashes)


def replay(target: Target, inputs: list[Path]) -> list[Reached]:
    """Runs single inputs; raises CalledProcessError for one that crashes the target."""
    if target.is_c:
        program = building.guided(target) if building.clang() else building.replaying(target)
        command = [str(program)]
    else:
        command = [sys.executable, "-m", "fuzz.python_target", target.name, "replay"]
    with corpus.room() as environment:
        subprocess.run([*command, *map(str, inputs)], check=True, cwd=ROOT, env=environment)
    return []


def keep(target: Target) -> None:
    """Commits the fewest of all found inputs that reach what all of them do."""
    place, least = corpus.folder(target.name), corpus.BUILT / "least" / target.name
    if target.is_c:
        shutil.rmtree(least, ignore_errors=True)
        least.mkdir(parents=True)
        _guided(target, ["-set_cover_merge=1", "-use_counters=0", str(least), str(place)])
        kept = sorted(least.iterdir())
    else:
        arguments = ["-m", "fuzz.python_target", target.name, "least", *map(str, place.iterdir())]
        kept = [Path(line) for line in _said([sys.executable, *arguments]).split()]
    corpus.write(target.name, [path.read_bytes() for path in kept])


def _options(target: Target) -> list[str]:
    words = CRASHES.parent / f"{target.name}.words"
    words.write_text("".join(f'"{word}"\n' for word in target.words or ("a",)))  # not empty
    return [
        f"-rss_limit_mb={_MEMORY_MIB}",
        f"-max_len={target.most_bytes}",
        f"-artifact_prefix={CRASHES}/{target.name}-",
        f"-dict={words}",
        "-print_final_stats=1",
        "-reload=0",
        f"-report_slow_units={_SECONDS_EACH}",
    ]


def _guided(target: Target, arguments: list[str]) -> str:
    command = [sys.executable, "-m", "fuzz.python_target", target.name, "guided"]
    if target.is_c:
        command = [*_at_same_addresses(), str(building.guided(target))]
    return _said(command, *arguments)


@functools.cache
def _at_same_addresses() -> tuple[str, ...]:
    """Returns what starts a program so, where it may: what it compares is a hint to libFuzzer."""
    command = ("setarch", "-R")
    try:
        subprocess.run([*command, "true"], check=True, stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        return ()
    return command


def _said(command: list[str], *arguments: str) -> str:
    with corpus.room() as environment:
        done = subprocess.run(
            [*command, *arguments],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    return done.stdout
