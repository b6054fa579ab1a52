"""What is asked about local memory, and which functions are pending, without a driver."""

import re
import subprocess

import pytest

from support import ROOT, Compile
from support.shim.native_programs import shim_files
from support.waiting import PATIENCE_S

NAMES = ("local_memory", "local_functions", "local_hand_out")
PURE = shim_files(*NAMES)
SOURCE = "local_questions.c"
CASES = re.findall(r"^    CASE\((\w+)\)", (ROOT / "tests/native" / SOURCE).read_text(), re.M)
FLAGS = ("-fsanitize=address,undefined", "-Wno-unused-parameter")


@pytest.mark.parametrize("case", CASES)
def test_it_holds_that(compile_program: Compile, case: str) -> None:
    program = compile_program(SOURCE, *PURE, flags=FLAGS)

    done = subprocess.run([program, case], capture_output=True, text=True, timeout=PATIENCE_S)

    assert done.returncode == 0, done.stderr
