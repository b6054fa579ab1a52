"""Each claim of SECURITY.md names a test that is there; that it ran is known after `make check`."""

import ast
from pathlib import Path

import pytest

from support import ROOT
from support.named_tests import judged, names_in, outcomes

PAGE = (ROOT / "SECURITY.md").read_text()
_TESTS = sorted((ROOT / "tests").rglob("test_*.py"))


def rows() -> list[list[str]]:
    """Returns the cells of each threat."""
    section = PAGE.partition("\n## Threats\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def functions() -> set[str]:
    """Returns the names of all tests."""
    return {
        each.name
        for file in _TESTS
        for each in ast.parse(file.read_text()).body
        if isinstance(each, ast.FunctionDef)
    }


def test_the_page_has_a_table_of_threats() -> None:
    assert len(rows()) > 20
    assert {len(row) for row in rows()} == {3}


def test_every_test_that_the_page_names_is_there() -> None:
    there = functions() | {file.name for file in _TESTS}
    named = set(names_in(PAGE))

    assert len(named) > 20
    assert named - there == set()


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0][:60])
def test_a_threat_has_a_test_or_is_said_to_be_open(row: list[str]) -> None:
    _, what, tests = row
    is_open = what.startswith(("not prevented: ", "answered"))

    assert bool(names_in(tests)) != is_open


def test_who_was_skipped_failed_or_run_by_nobody_did_not_run(tmp_path: Path) -> None:
    report = tmp_path / "tests.xml"
    report.write_text(
        "<testsuites><testsuite>"
        '<testcase classname="tests.unit.test_a" name="test_good[1]"/>'
        '<testcase classname="tests.unit.test_a" name="test_good[2]">'
        '<skipped message="no Go"/></testcase>'
        '<testcase classname="tests.e2e.test_b" name="test_left_out">'
        '<skipped message="no etcd"/></testcase>'
        '<testcase classname="tests.e2e.test_c" name="test_bad"><failure/></testcase>'
        "</testsuite></testsuites>"
    )
    names = names_in("`test_good`, `test_left_out`, `test_bad`, `test_a.py`, `test_gone.py`")

    assert judged(names, outcomes([report])) == (
        ["test_bad failed", "test_gone.py was run by none of these"],
        ["test_left_out did not run: skipped: no etcd"],
    )
