"""The table of CONTRIBUTING.md says which tests there are and what runs them, as the Makefile does.

What make would run is asked of make, and what pytest would choose of its own reading of marks.
"""

import os
import re
import shlex
import shutil
import subprocess
import tomllib

import pytest
from _pytest.mark.expression import Expression, ExpressionMatcher

from support import ROOT

SECTION = (ROOT / "CONTRIBUTING.md").read_text().partition("## Which test protects what\n")[2]
RUNS = ("quick", "test", "check", "check-long")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in SECTION.splitlines()
    if line.startswith("| ") and not line.startswith("| Tests |")
]
PATHS = re.compile(r"`(tests/\w+)`")
MARKS = re.compile(r"marked `(\w+)`")


def chosen(target: str) -> list[tuple[Expression, list[str]]]:
    """Returns what each run of pytest of a target chooses: marks, and folders."""
    # The long check runs this test, too: what it sets is for its own targets.
    env = {name: value for name, value in os.environ.items() if name != "VGPU_LONG"}
    said = subprocess.run(
        ["make", "-n", target], cwd=ROOT, env=env, capture_output=True, text=True, check=True
    ).stdout.replace("\\\n", "")
    found = []
    for line in said.splitlines():
        if " -m pytest " in line:
            words = shlex.split(line.partition(" -m pytest ")[2].partition("||")[0])
            marks = words[words.index("-m") + 1]
            found.append((Expression.compile(marks), [w for w in words if w.startswith("tests/")]))
    return found


def matcher(marks: set[str]) -> ExpressionMatcher:
    def has(name: str, /, **_: object) -> bool:
        return name in marks

    return has


def test_the_table_names_every_folder_and_every_mark() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    marks = {m.partition(":")[0] for m in settings["tool"]["pytest"]["ini_options"]["markers"]}
    folders = {
        f"tests/{path.relative_to(ROOT / 'tests').parts[0]}"
        for path in (ROOT / "tests").rglob("test_*.py")
    }

    assert marks - set(re.findall(r"marked `(\w+)`", SECTION)) == set()
    assert folders - set(PATHS.findall(SECTION)) == set()


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
@pytest.mark.parametrize("target", RUNS)
def test_what_the_table_says_of_a_run_is_what_it_chooses(target: str) -> None:
    runs = chosen(target)
    assert runs

    for tests, _, *cells in ROWS:
        folder = PATHS.search(tests)
        marks = {*MARKS.findall(tests), *({"process"} if tests == "`tests/model`" else ())}
        is_run = any(
            marked.evaluate(matcher(marks)) and (not paths or (folder and folder[1] in paths))
            for marked, paths in runs
        )
        assert is_run == bool(cells[RUNS.index(target)]), tests


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
def test_coverage_is_that_of_what_quick_runs() -> None:
    (quick,), (covered,) = chosen("quick"), chosen("coverage")

    assert covered[1] == quick[1]
    for tests, *_ in ROWS:
        marks = set(MARKS.findall(tests))
        assert covered[0].evaluate(matcher(marks)) == quick[0].evaluate(matcher(marks)), tests
