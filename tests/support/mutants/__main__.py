"""``python -m support.mutants``: mutants of each room, by a seed, against the room's tests.

Prints the survivors and fails if fewer than 90 % of a room's mutants were killed. Those in
``equal.json`` are left out. A survivor is read: it gets a test, or a row there with the reason.
"""

import argparse
import json
import os
import queue
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support import ROOT

from .operators import Mutant
from .rooms import ROOMS
from .trees import TestsError, Tree, Verdict

LEAST_KILLED = 0.9
EQUAL = Path(__file__).with_name("equal.json")
REPORT = ROOT / "build/mutants/report.json"
_Key = tuple[str, str, str, str]


def equal() -> dict[_Key, str]:
    """Returns why each mutant that changes nothing does not."""
    rows = json.loads(EQUAL.read_text())
    return {(r["file"], r["function"], r["before"], r["after"]): r["why"] for r in rows}


def chosen(room: str, seed: int) -> list[Mutant]:
    """Returns all mutants of a room that count, in the order in which they are taken: by a seed, of
    each kind as many.
    """
    known, found = equal(), list(ROOMS[room].mutants())
    random.Random(f"{seed} {room}").shuffle(found)
    seen: Counter[str] = Counter()
    turns: list[tuple[int, Mutant]] = []
    for mutant in found:
        turns.append((seen[mutant.kind], mutant))
        seen[mutant.kind] += 1
    in_turn = [mutant for _, mutant in sorted(turns, key=lambda turn: turn[0])]
    return [mutant for mutant in in_turn if mutant.key not in known]


class Run:
    """One run: copies of the checkout that take the mutants in turn."""

    def __init__(self, workers: int) -> None:
        self._trees: queue.Queue[Tree] = queue.Queue()
        self._pool = ThreadPoolExecutor(workers)
        for number in range(workers):
            tree = Tree(number)
            tree.refresh()
            self._trees.put(tree)

    def judge(
        self, room: str, mutants: Sequence[Mutant], count: int
    ) -> Iterator[tuple[Mutant, str]]:
        """Yields the first ``count`` mutants that compile, each with what killed it, if anything.

        Raises:
            TestsError: the room's tests fail without a mutant.
        """
        timeout_s = self._patience_s(room)

        def one(mutant: Mutant) -> Verdict:
            tree = self._trees.get()
            try:
                return tree.attempt(mutant, ROOMS[room].tests, timeout_s)
            finally:
                self._trees.put(tree)

        left = list(mutants)
        while left and count > 0:
            now, left = left[:count], left[count:]
            for mutant, verdict in zip(now, self._pool.map(one, now), strict=True):
                if verdict.compiles:
                    count -= 1
                    yield mutant, verdict.by

    def _patience_s(self, room: str) -> float:
        """Returns how long the tests of a room may take, from how long they take as it is."""
        tree, began_s = self._trees.get(), time.monotonic()
        failed = tree.test(ROOMS[room].tests, 600)
        took_s = time.monotonic() - began_s
        self._trees.put(tree)
        if failed:
            raise TestsError(f"{room}: its tests fail without a mutant: {failed}")
        print(f"{room}: its tests take {took_s:.0f} s", flush=True)
        return 20 + 3 * took_s


def run_room(run: Run, room: str, options: argparse.Namespace, last: dict[str, list[str]]) -> bool:
    """Tries a room's mutants and reports; returns whether enough were killed."""
    mutants = chosen(room, options.seed)
    if options.again:
        mutants = [each for each in mutants if each.diff in last[room]]
    last[room] = []
    tried = 0
    for mutant, by in run.judge(room, mutants, options.each):
        tried += 1
        if not by:
            last[room].append(mutant.diff)
            print(f"survived: {mutant.diff}", flush=True)
        REPORT.write_text(json.dumps(last, indent=1))
    killed = tried - len(last[room])
    print(f"{room}: {killed} of {tried} mutants killed", flush=True)
    return killed >= LEAST_KILLED * tried


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--each", type=int, default=30, help="mutants of each room")
    parser.add_argument("--seed", type=int, default=1, help="which they are")
    parser.add_argument("--only", choices=ROOMS, action="append", help="a room")
    parser.add_argument("--again", action="store_true", help="the survivors of the last run")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="at once")
    options = parser.parse_args()
    last = json.loads(REPORT.read_text()) if REPORT.exists() else {}
    run = Run(options.workers)
    rooms = options.only or ROOMS
    too_few = [room for room in rooms if not run_room(run, room, options, last)]
    return 1 if too_few else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TestsError as error:
        sys.exit(f"make mutants: {error}")
