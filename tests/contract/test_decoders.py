"""What is decoded is decoded with types that `libvgpu/decoding.py` has worked out.

msgspec's own calls work a type out where they first meet it, which two threads must not do at once.
"""

import ast
from pathlib import Path

import pytest

from deviceplugin.kube.api_client import ANSWERS
from support import ROOT

_ROOMS = ("deviceplugin", "libvgpu", "vgpuctl")
_ONLY_HERE = ROOT / "libvgpu/decoding.py"


def _meets_a_type(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    if name in ("msgspec.convert", "convert"):
        return True
    return name.startswith("msgspec.") and (
        (name.endswith(".Decoder") and bool(call.args or call.keywords))
        or (name.endswith(".decode") and any(each.arg == "type" for each in call.keywords))
    )


def calls_that_meet_a_type(text: str) -> list[int]:
    """Returns the lines on which msgspec is given a type."""
    calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    return [call.lineno for call in calls if _meets_a_type(call)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("msgspec.json.decode(x, type=Pod)", [1]),
        ("msgspec.convert(x, Pod)", [1]),
        ("msgspec.yaml.decode(x, type=Pod)", [1]),
        ("msgspec.json.Decoder(Pod)", [1]),
        ("msgspec.json.decode(x)\njson_decoder(Pod).decode(x)", []),
    ],
)
def test_a_call_that_meets_a_type_is_found(text: str, found: list[int]) -> None:
    assert calls_that_meet_a_type(text) == found


def test_what_lightkube_decodes_is_worked_out_at_import() -> None:
    trees = [ast.parse(path.read_text()) for path in (ROOT / "deviceplugin").rglob("*.py")]
    used = {
        name.name
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("lightkube.resources")
        for name in node.names
    }
    assert used | {"Status"} == {each.__name__ for each in ANSWERS}


def test_types_are_worked_out_in_one_place() -> None:
    files = [path for room in _ROOMS for path in sorted(Path(ROOT / room).rglob("*.py"))]
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in files
        if path != _ONLY_HERE
        for line in calls_that_meet_a_type(path.read_text())
    ]
    assert not wrong, "use json_decoder or converter of libvgpu/decoding.py"
