"""What the agent reads of processes on drivers whose lists have other forms."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from libvgpu.sim import Machine
from support.lines import next_line
from support.sim.programs import finish, start
from support.sim.releases import FORMS, machine_of
from support.waiting import PATIENCE_S

MIB = 1 << 20
HOLD = """
open_context(); check(cuda.cuMemAlloc(int(os.environ["SIZE"])))
print(os.getpid(), flush=True)
sys.stdin.read()
"""
READ = """
import json, sys
from deviceplugin.mps.compute_mode import NvmlBoards
from deviceplugin.watch.nvml_processes import read_gpus
reading = read_gpus(sys.argv[1:])[sys.argv[1]]
print(json.dumps([sorted(reading.memory_bytes.items()), NvmlBoards().processes(sys.argv[1])]))
"""


def read(machine: Machine) -> list[object]:
    done = subprocess.run(
        [sys.executable, "-c", READ, machine.devices[0].uuid],
        env=machine.environment(dict(os.environ)),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    found: list[object] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", FORMS)
def test_each_process_has_its_own_figure_on_every_driver(tmp_path: Path, name: str) -> None:
    machine = machine_of(name, tmp_path / "machine", context_bytes=0)
    sizes = [2 * MIB, 4 * MIB, 6 * MIB]
    holders = [start(machine, HOLD, {"SIZE": str(size)}) for size in sizes]
    pids = [int(next_line(each)) for each in holders]

    found = read(machine)
    for each in holders:
        finish(each)

    expected = sorted([pid, size] for pid, size in zip(pids, sizes, strict=True))
    assert found == [expected, sorted(pids)]
