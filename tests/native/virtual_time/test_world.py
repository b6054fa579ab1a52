"""Programs, their threads and an arbiter in a time of their own: it is the same in each run."""

import ctypes
import json
import os
import sys
from pathlib import Path

import pytest

from support import CLIENT_PATH, Compile
from support.shim.symbols import exports
from support.shim.virtual_time import FLAGS, SOURCES, Chance, run_program

TENANTS = """
import json, sys, time
from pathlib import Path
from libvgpu.limits import ComputeMode
from support.shim.crowd import MS, Crowd
from support.sim.measured import measured_machine

folder = Path(sys.argv[1])
machine = measured_machine(folder)
crowd = Crowd(machine, folder)
crowd.join(30, ComputeMode.STRICT, 2 * MS)
crowd.join(70, ComputeMode.ELASTIC, MS, "spinner.wait()")
seen = [crowd.shares(0.03) for _ in range(10)]
crowd.close()
machine.remove()
print(json.dumps([*seen, time.monotonic_ns()]))
"""


@pytest.mark.parametrize("chance", [None, Chance(seed=1, one_in=300, late_ns=100_000)])
def test_two_tenants_and_their_arbiter_do_the_same_in_each_run(
    compile_program: Compile, tmp_path: Path, chance: Chance | None
) -> None:
    found = []
    for name in ("first", "other"):
        folder = tmp_path / name
        folder.mkdir()
        environment = {**os.environ, "PYTHONPATH": CLIENT_PATH}
        command = [sys.executable, "-c", TENANTS, str(folder)]
        found.append(json.loads(run_program(compile_program, environment, folder, command, chance)))

    assert found[0] == found[1]
    assert all(each > 0 for each in found[0][-2])


def test_a_call_is_taken_over_in_its_fortified_form_too(compile_program: Compile) -> None:
    """Ubuntu's compiler makes these calls. Who waits in one left out keeps the turn for ever."""
    taken = exports(compile_program(*SOURCES, flags=FLAGS))
    libc = ctypes.CDLL(None)
    fortified = {f"__{name}_chk" for name in taken if hasattr(libc, f"__{name}_chk")}

    assert "__recv_chk" in fortified
    assert fortified <= taken
