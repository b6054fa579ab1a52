"""What is asked about local memory, and which functions are pending, without a driver."""

import re

import pytest

from support import ROOT, Compile
from support.ended import printed
from support.shim.native_programs import shim_files

NAMES = ("local_memory", "local_functions", "local_hand_out")
PURE = shim_files(*NAMES)
SOURCE = "local_questions.c"
CASES = re.findall(r"^    CASE\((\w+)\)", (ROOT / "tests/native" / SOURCE).read_text(), re.M)
FLAGS = ("-fsanitize=address,undefined", "-Wno-unused-parameter")


@pytest.mark.parametrize("case", CASES)
def test_it_holds_that(compile_program: Compile, case: str) -> None:
    program = compile_program(SOURCE, *PURE, flags=FLAGS)

    printed(program, case)
