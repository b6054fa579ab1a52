"""What several test folders share: compiling small C programs, and simulated machines."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support import ROOT, Compile

COMPILE_SECONDS = 60


@pytest.fixture(scope="session")
def compile_program(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Returns ``compile_program(source, *more, flags=())``: builds a test program, gives its path.

    ``source`` is below ``tests/native``, ``more`` are further sources relative to the checkout.
    """
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("native")

    def build(source: str, *more: str, flags: tuple[str, ...] = ()) -> Path:
        target = folder / (Path(source).stem + "".join(flags).replace("/", "_"))
        if not target.exists():
            subprocess.run(
                [compiler, "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra",
                 "-Ilibvgpu/include", "-Ilibvgpu/src", "-Ilibvgpu/sim/core",
                 f"tests/native/{source}", *more, *flags, "-o", str(target),
                 "-ldl", "-lpthread"],
                cwd=ROOT, check=True, timeout=COMPILE_SECONDS,
            )  # fmt: skip
        return target

    return build
