"""JSON files: what fits is one line, and so is each row of a list."""

import json
from pathlib import Path

import pytest

from libvgpu.json_rows import main, to_rows

ROW = {"case": "c" * 60, "note": "n" * 60}
NAMES = [f"name-{number:03}" for number in range(20)]


def test_what_fits_is_one_line() -> None:
    assert to_rows({"a": [1, {"b": None}], "µ": {}}) == '{"a": [1, {"b": null}], "µ": {}}\n'


def test_a_row_of_a_list_is_one_line_however_long() -> None:
    line = json.dumps(ROW)

    assert to_rows({"rows": [ROW, ROW]}) == f'{{\n "rows": [\n  {line},\n  {line}\n ]\n}}\n'


def test_an_object_that_is_no_row_has_a_line_for_each_key() -> None:
    case, note = (json.dumps(each) for each in ROW.values())

    assert to_rows(ROW) == f'{{\n "case": {case},\n "note": {note}\n}}\n'


def test_plain_values_fill_lines() -> None:
    lines = to_rows(NAMES).splitlines()

    assert [line.count("name") for line in lines] == [0, 10, 10, 0]
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize("over", [0, 1])
def test_a_line_has_120_characters_at_most_with_its_comma(over: int) -> None:
    row = ["x" * (120 - len('  ["", []],') + over), []]

    lines = to_rows({"rows": [row, row]}).splitlines()

    assert (f"  {json.dumps(row)}," in lines) is (over == 0)


@pytest.mark.parametrize("value", [[], {}, None, "text", [[], {}], {"a": [NAMES, [ROW, [ROW]]]}])
def test_nothing_is_lost(value: object) -> None:
    assert json.loads(to_rows(value)) == value


def test_files_are_written_in_this_form(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text(json.dumps(NAMES, indent=4))

    main([str(path)])

    assert path.read_text() == to_rows(NAMES)
