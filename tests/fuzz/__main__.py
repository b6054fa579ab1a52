"""Coverage-guided fuzzing of every parser of what others write: ``make fuzz``.

    FUZZ_SECONDS=60     how long each target looks for inputs; 0: run the corpus only
    FUZZ_SHORT=1        as `make check` does: the same inputs each time, some ten seconds' worth
    FUZZ="json http"    these targets and no others
    FUZZ_INPUT=FILE     run this input in the one target, and show what it does
    FUZZ_KEEP=1         commit the fewest inputs that reach all that was reached
    FUZZ_MISSED=1       show each parser, and the branches that no input reaches

Targets run side by side, one a processor.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fuzz import building, running
from fuzz.targets import BY_NAME, TARGETS, Target
from support import ROOT

_SHOWN_LINES = 30


def main() -> int:
    """Returns the exit status: 1 if a target crashed, or reaches too little of its parsers."""
    names = os.environ.get("FUZZ", "").split()
    chosen = [BY_NAME[name] for name in names] or list(TARGETS)
    given = os.environ.get("FUZZ_INPUT")
    if given:
        return _one(chosen[0], Path(given))
    seconds = int(os.environ.get("FUZZ_SECONDS") or 60)
    is_short = bool(os.environ.get("FUZZ_SHORT"))
    if seconds or is_short:
        _say_what_is_missing(chosen)
    ran_all = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        one = running.run_short if is_short else lambda target: running.run(target, seconds)
        for ran in pool.map(one, chosen):
            print(ran.line(), flush=True)
            ran_all.append(ran)
            _tell(ran)
    crashed = any(ran.crashes for ran in ran_all)
    if os.environ.get("FUZZ_KEEP") and not crashed:
        for target in chosen:
            running.keep(target)
    return int(crashed or any(ran.reaches_few for ran in ran_all))


def _one(target: Target, given: Path) -> int:
    try:
        running.replay(target, [given.resolve()])
    except subprocess.CalledProcessError:
        return 1
    print(f"{target.name}: {given} is read")
    return 0


def _say_what_is_missing(chosen: list[Target]) -> None:
    if building.clang() is None and any(target.is_c for target in chosen):
        print("no clang with libFuzzer: targets in C run their corpus only (apt install clang)")
    if not all(running.can_be_guided(target) for target in chosen if not target.is_c):
        print("no atheris for this Python or machine: targets in Python run their corpus only")


def _tell(ran: running.Ran) -> None:
    for path, said in ran.crashes.items():
        print("\n".join(said.splitlines()[-_SHOWN_LINES:]), file=sys.stderr)
        if path.is_file():
            shown = path.relative_to(ROOT)
            print(f"again: make fuzz FUZZ={ran.target.name} FUZZ_INPUT={shown}", flush=True)
    if os.environ.get("FUZZ_MISSED"):
        for each in ran.parsers:
            print(f"    {each}; not: {' '.join(each.missed) or 'none'}")


if __name__ == "__main__":
    sys.exit(main())
