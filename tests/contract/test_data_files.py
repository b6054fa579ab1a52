"""JSON that is committed has the form of `libvgpu.json_rows`: a row of data is a line."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from libvgpu.json_rows import to_rows
from support import ROOT

_FOLDERS = ("benchmarks", "deploy", "docs")


def data_files() -> Iterator[Path]:
    return (path for folder in _FOLDERS for path in sorted((ROOT / folder).rglob("*.json")))


@pytest.mark.parametrize("name", [str(path.relative_to(ROOT)) for path in data_files()])
def test_a_row_of_data_is_a_line(name: str) -> None:
    text = (ROOT / name).read_text()

    assert text == to_rows(json.loads(text)), "make fmt writes it"


def test_there_are_data_files() -> None:
    folders = {path.parent.relative_to(ROOT).as_posix() for path in data_files()}
    assert {"benchmarks/results", "deploy/image", "docs/schemas"} <= folders
