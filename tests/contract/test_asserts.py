"""An assert of the product tells mypy what the code around it ensures.

Python leaves asserts out under -O. So none may check what a user, a file or another process gave.
"""

import ast
from collections.abc import Iterator

from support import ROOT


def narrows(test: ast.expr) -> bool:
    """Whether a condition is of types alone: isinstance, or not None."""
    match test:
        case ast.BoolOp(op=ast.And(), values=values):
            return all(map(narrows, values))
        case ast.Call(func=ast.Name(id="isinstance")):
            return True
        case ast.Compare(ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return True
    return False


def asserts(source: str) -> Iterator[ast.Assert]:
    return (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assert))


def test_every_assert_of_the_product_narrows_a_type() -> None:
    found = [
        (path, each)
        for folder in ("libvgpu", "deviceplugin", "vgpuctl", "deploy")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for each in asserts(path.read_text())
    ]

    assert found
    assert [f"{path}:{each.lineno}" for path, each in found if not narrows(each.test)] == []


def test_a_check_of_a_value_is_none_that_narrows() -> None:
    checks = "assert x > 0\nassert x\nassert x is None\nassert isinstance(x, int) or x is not None"

    assert [narrows(each.test) for each in asserts(checks)] == [False] * 4
