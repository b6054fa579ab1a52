"""What leaves a hook by a jump or keeps a register through it is right without optimisation, too.

A compiler that does not optimise keeps frame pointers, spills every argument and makes no tail
call. So the shim is built once more at -O0, by each compiler there is: lookups must still reach
the loader with their caller's return address, launches the driver with all their arguments, and the
16-byte atomics their flags. The gate runs the same tests on the shim at -O2.
"""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

from libvgpu._build import PORTABLE_COMPILER
from libvgpu._sources import COMPILE_ARGS, INCLUDES, LIBRARIES, LINK_ARGS
from support import ROOT
from support.suite.on_build import TESTS_SECONDS, assert_tests_pass_on


@pytest.mark.long
@pytest.mark.timeout(2 * TESTS_SECONDS)
@pytest.mark.parametrize("compiler", ["cc", "zig"])
def test_a_shim_without_optimisation_passes_the_tests_of_the_shim(
    compiler: str, tmp_path: Path
) -> None:
    if compiler == "zig" and not importlib.util.find_spec("ziglang"):
        pytest.skip("no ziglang")
    if compiler == "cc" and shutil.which("cc") is None:
        pytest.skip("no cc")
    command = PORTABLE_COMPILER if compiler == "zig" else ["cc"]
    arguments = [argument for argument in COMPILE_ARGS if argument != "-O2"]
    subprocess.run(
        [*command, "-shared", "-fPIC", "-O0", *arguments, *(f"-I{each}" for each in INCLUDES),
         *map(str, sorted(ROOT.glob("libvgpu/src/**/*.c"))), *LINK_ARGS, "-Wl,-soname,libvgpu.so",
         *(f"-l{each}" for each in LIBRARIES), "-o", str(tmp_path / "libvgpu.so")],
        cwd=ROOT, check=True, timeout=TESTS_SECONDS,
    )  # fmt: skip

    assert_tests_pass_on(tmp_path)
