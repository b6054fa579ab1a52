"""Each claim of SECURITY.md names a test that is there."""

import ast
import re

import pytest

from support import ROOT

PAGE = (ROOT / "SECURITY.md").read_text()
_TESTS = sorted((ROOT / "tests").rglob("test_*.py"))
_NAME = re.compile(r"`(test_\w+(?:\.py)?)`")


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
    named = set(_NAME.findall(PAGE))

    assert len(named) > 20
    assert named - there == set()


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0][:60])
def test_a_threat_has_a_test_or_is_said_to_be_open(row: list[str]) -> None:
    _, what, tests = row
    is_open = what.startswith(("not prevented: ", "answered"))

    assert bool(_NAME.findall(tests)) != is_open
