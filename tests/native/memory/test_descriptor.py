"""Marks on file descriptors: they go where the descriptor goes, and end with its last copy."""

import subprocess

import pytest

from support import Compile
from support.waiting import PATIENCE_S


# A character device is what a real driver exports; the simulated one gives out memfds.
@pytest.mark.parametrize("file", ["memfd", "/dev/null"])
def test_a_mark_lasts_as_long_as_a_copy_of_its_descriptor(
    compile_program: Compile, file: str
) -> None:
    program = compile_program("descriptor_marks.c", "libvgpu/src/memory/shared/descriptor.c")

    done = subprocess.run([program, file], capture_output=True, text=True, timeout=PATIENCE_S)

    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
