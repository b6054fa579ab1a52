"""How many branches of a target's parsers its inputs reach, by clang or by coverage.py."""

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz import building
from fuzz.corpus import BUILT, room
from fuzz.targets import Target
from support import ROOT


@dataclass(frozen=True, slots=True)
class Reached:
    """What of one parser was reached.

    Attributes:
        missed: where branches are that were not, as ``LINE`` in C and ``LINE->LINE`` in Python.
    """

    parser: str
    branches: int
    missed: tuple[str, ...]

    def __str__(self) -> str:
        reached = self.branches - len(self.missed)
        part = 100.0 * reached / max(1, self.branches)
        return f"{self.parser}: {part:.1f} % ({reached} of {self.branches})"


def reached(target: Target, inputs: Iterable[Path]) -> list[Reached]:
    """Returns what the inputs reach of each parser.

    Raises:
        CalledProcessError: one of them is a crash.
    """
    names = [str(path) for path in inputs]
    BUILT.mkdir(parents=True, exist_ok=True)
    return _of_c(target, names) if target.is_c else _of_python(target, names)


def _of_python(target: Target, names: list[str]) -> list[Reached]:
    report = BUILT / f"{target.name}.json"
    arguments = ["-m", "fuzz.python_target", target.name, "cover", str(report), *names]
    with room() as environment:
        subprocess.run([sys.executable, *arguments], check=True, cwd=ROOT, env=environment)
    files = json.loads(report.read_text())["files"]
    return [
        _summed(parser, _functions(files.get(parser, {}).get("functions", {}), wanted))
        for parser, wanted in target.parsers.items()
    ]


def _functions(found: dict[str, Any], wanted: tuple[str, ...]) -> Iterator[tuple[int, list[str]]]:
    for name, each in found.items():
        if name and (not wanted or name in wanted or name.partition(".")[0] in wanted):
            missed = [f"{at}->{to}" for at, to in each.get("missing_branches", ())]
            yield each["summary"]["num_branches"], missed


def _of_c(target: Target, names: list[str]) -> list[Reached]:
    program, raw = building.covered(target), BUILT / f"{target.name}.profraw"
    merged = raw.with_suffix(".profdata")
    with room() as environment:
        noting = {**environment, "LLVM_PROFILE_FILE": str(raw)}
        subprocess.run(
            [program, *names], check=True, cwd=ROOT, env=noting, stderr=subprocess.DEVNULL
        )
    tool = building.tool("llvm-profdata")
    subprocess.run([tool, "merge", "-sparse", raw, "-o", merged], check=True)
    said = subprocess.run(
        [building.tool("llvm-cov"), "export", program, f"-instr-profile={merged}"],
        check=True, capture_output=True, text=True, cwd=ROOT,
    ).stdout  # fmt: skip
    found = json.loads(said)["data"][0]["functions"]
    return [_c_file(parser, found, wanted) for parser, wanted in target.parsers.items()]


def _c_file(parser: str, found: list[dict[str, Any]], wanted: tuple[str, ...]) -> Reached:
    """A condition has two branches; both of a line may be missed."""
    rows = [
        row
        for each in found
        if each["filenames"][0].endswith(parser)
        if not wanted or each["name"].rpartition(":")[2] in wanted
        for row in each["branches"]
    ]
    missed = [str(row[0]) for row in rows for count in row[4:6] if count == 0]
    return Reached(parser, 2 * len(rows), tuple(missed))


def _summed(parser: str, parts: Iterable[tuple[int, list[str]]]) -> Reached:
    counted = list(parts)
    missed = tuple(each for _, names in counted for each in names)
    return Reached(parser, sum(count for count, _ in counted), missed)
