"""Every way to a driver function ends at its hook; every other name is left alone."""

import os
import subprocess
from pathlib import Path

import pytest

from libvgpu.artifacts import SIM_LIBRARY_DIR, shim_path
from libvgpu.sim import PROFILES, Machine
from libvgpu.sim.spec import DRIVER_VERSIONS
from support import Compile
from support.waiting import PATIENCE_S

HAS_STATUS = DRIVER_VERSIONS["12.4"]  # a driver that has cuGetProcAddress_v2

both_optimisations = pytest.mark.parametrize("optimisation", ["-O0", "-O3"])


def look_up(program: Path, machine: Machine, *state: str) -> None:
    # gcc's AddressSanitizer wants to be the first library, and at the end to trace the program.
    own = {
        "LD_PRELOAD": str(shim_path()),
        "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0",
    }
    environment = machine.environment(os.environ) | own

    done = subprocess.run(
        [str(program), *state], env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )

    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("state", ["with", "without"])
@both_optimisations
def test_lookups(compile_program: Compile, machine: Machine, state: str, optimisation: str) -> None:
    if state == "with" and machine.driver_version < HAS_STATUS:
        pytest.skip("asks cuGetProcAddress_v2")
    look_up(compile_program("shim_lookup.c", flags=(optimisation,)), machine, state)


@both_optimisations
def test_what_an_older_driver_lacks_is_not_there(
    compile_program: Compile, tmp_path: Path, optimisation: str
) -> None:
    oldest = Machine.create([PROFILES["t4"]], tmp_path / "oldest", DRIVER_VERSIONS["11.8"])

    look_up(compile_program("shim_lookup.c", flags=(optimisation,)), oldest, "older")


# A sanitizer's run-time looks libc's functions up before what stands in for them works.
@pytest.mark.parametrize("flags", [(), ("-fsanitize=address",), ("-fsanitize=thread",)])
def test_a_dlsym_of_another_library_stays_that_one(
    compile_program: Compile, machine: Machine, flags: tuple[str, ...]
) -> None:
    shared = ("-shared", "-fPIC", "-Wl,--version-script=tests/native/own_dlsym.map")
    library = compile_program("own_dlsym.c", flags=shared)

    look_up(compile_program("shim_lookup.c", flags=flags), machine, "own", str(library))


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
