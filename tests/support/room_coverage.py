"""How much of each room of the Python packages the quick tests cover: ``make coverage``.

A room is a folder of a package with all below it, or the files of the package itself. Its floor, in
whole percent of its statements, is in tests/coverage_floors.json. A room that falls below its floor
fails, and so does one without a floor. ``--raise`` lifts the floors to what is covered now; it
lowers none.
"""

import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from . import ROOT

FLOORS = ROOT / "tests/coverage_floors.json"
#: Of a percent. How far a thread in the background comes before its test ends is luck: in two runs
#: two lines of a thousand differed. A floor leaves a room of 300 statements three of them.
SLACK = 1


def room_of(path: str) -> str:
    """Returns the room of a file, both relative to the checkout."""
    package, *folders = Path(path).parent.parts
    return "/".join((package, *folders[:1]))


def percents(files: Iterable[tuple[str, int, int]]) -> dict[str, float]:
    """Returns what is covered of each room.

    Args:
        files: path, statements, and how many of them ran.
    """
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for path, statements, ran in files:
        room = sums[room_of(path)]
        room[0] += statements
        room[1] += ran
    return {
        room: 100 * ran / statements
        for room, (statements, ran) in sorted(sums.items())
        if statements
    }


def complaints(found: Mapping[str, float], floors: Mapping[str, int]) -> list[str]:
    """Returns a sentence for each room that lacks tests, or whose floor is wrong."""
    fallen = [
        f"{room}: {found[room]:.1f} % covered, its floor is {floor} %: add the tests that it lost"
        for room, floor in floors.items()
        if room in found and found[room] < floor
    ]
    unknown = [f"{room} has no floor: make coverage RAISE=1" for room in found.keys() - floors]
    gone = [f"{room} is gone: remove its floor" for room in floors.keys() - found]
    return [*fallen, *sorted(unknown), *sorted(gone)]


def raised(found: Mapping[str, float], floors: Mapping[str, int]) -> dict[str, int]:
    """Returns the floors of the rooms that are there, none lower than it was."""
    return {
        room: max(floors.get(room, 0), math.floor(covered) - SLACK)
        for room, covered in found.items()
    }


def measured() -> dict[str, float]:
    """Returns what the last run under coverage covered of each room."""
    from coverage import Coverage

    coverage = Coverage(config_file=str(ROOT / "pyproject.toml"))
    coverage.load()
    report = ROOT / "build/coverage/report.json"
    coverage.json_report(outfile=str(report))
    return percents(
        (path, each["summary"]["num_statements"], each["summary"]["covered_lines"])
        for path, each in json.loads(report.read_text())["files"].items()
    )


def main(*options: str) -> int:
    """Prints a line for each room; returns the exit status."""
    found = measured()
    floors = json.loads(FLOORS.read_text())
    if options == ("--raise",):
        floors = raised(found, floors)
        FLOORS.write_text(json.dumps(floors, indent=2) + "\n")
    for room, covered in found.items():
        tenths = math.floor(10 * covered) / 10  # 98.96 is not 99
        print(f"{room:28} {tenths:5.1f} %   floor {floors.get(room, '-'):>3}")
    wrong = complaints(found, floors)
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
