"""Every way to a driver function ends at its hook; every other name is left alone."""

import os
import subprocess

import pytest

from libvgpu.artifacts import SIM_LIBRARY_DIR, shim_path
from libvgpu.sim import Machine
from support import Compile


@pytest.mark.parametrize("state", ["with", "without"])
@pytest.mark.parametrize("optimisation", ["-O0", "-O3"])
def test_lookups(compile_program: Compile, machine: Machine, state: str, optimisation: str) -> None:
    program = compile_program("shim_lookup.c", flags=(optimisation,))
    environment = machine.environment(os.environ) | {"LD_PRELOAD": str(shim_path())}

    done = subprocess.run(
        [str(program), state], env=environment, capture_output=True, text=True, timeout=30
    )

    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
    assert done.stderr == ""


def test_rtld_next_stays_relative_to_the_library_that_asks(compile_program: Compile) -> None:
    library = compile_program("next_library.c", flags=("-shared", "-fPIC"))
    environment = {
        "LD_PRELOAD": f"{library}:{shim_path()}",
        "LD_LIBRARY_PATH": str(SIM_LIBRARY_DIR),
        "PATH": os.environ["PATH"],
        "ASKED": "found",
    }

    done = subprocess.run(
        ["sh", "-c", "env | grep ^ASKED"], env=environment, capture_output=True, text=True
    )

    assert done.stdout == "ASKED=found\n", done.stderr
