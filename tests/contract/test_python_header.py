"""Our declarations of Python's stable ABI say what Python's own header says."""

import shutil
import sysconfig
from pathlib import Path

import pytest

from support import ROOT
from support.ended import run_to_end

OURS = ROOT / "libvgpu/include/python/Python.h"
THEIRS = Path(sysconfig.get_path("include"), "Python.h")

pytestmark = [
    pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc"),
    pytest.mark.skipif(not THEIRS.exists(), reason=f"no {THEIRS}: install python3-dev"),
]


def says(ours: str, tmp_path: Path) -> str:
    """Returns what the compiler says of Python's header with ours behind it."""
    (tmp_path / "ours.h").write_text(ours)
    (tmp_path / "both.c").write_text(
        "#define Py_LIMITED_API 0x030B0000\n#include <Python.h>\n"
        '#define VGPU_WITH_PYTHON_H\n#include "ours.h"\n'
    )
    return run_to_end(
        ["gcc", "-std=gnu11", f"-I{THEIRS.parent}", "-fsyntax-only", "both.c"], cwd=tmp_path
    ).stderr


def test_our_declarations_agree_with_pythons(tmp_path: Path) -> None:
    assert says(OURS.read_text(), tmp_path) == ""


def test_a_declaration_that_differs_would_be_found(tmp_path: Path) -> None:
    wrong = OURS.read_text().replace("PyBool_FromLong(long value)", "PyBool_FromLong(int value)")

    assert "conflicting types for" in says(wrong, tmp_path)
