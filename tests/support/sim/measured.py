"""Simulated H100s that behave as the real one did, and what that one showed."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from libvgpu.sim import PROFILES, Machine
from libvgpu.sim.calibration import find_calibration
from support import ROOT
from support.sim.driver import driver_version
from support.sim.programs import run

MIB = 1 << 20
#: Of a file in ``benchmarks/results``; the driver alone, nothing else on the GPU.
SHOWN: dict[str, Any] = json.loads(
    (ROOT / "benchmarks/results/driver-h100-2026-11-23.json").read_text()
)


def shown_memory(key: str) -> dict[str, Any]:
    """Returns the first row of ``memory`` that has a key."""
    row: dict[str, Any] = next(row for row in SHOWN["memory"] if key in row)
    return row


def shown_launch(name: str) -> dict[str, Any]:
    """Returns what the first launch of a kernel took, of those named there."""
    row: dict[str, Any] = next(row for row in SHOWN["memory"] if row.get("first_launch") == name)
    return row


def measured_machine(folder: Path, count: int = 1, **figures: Any) -> Machine:
    """Makes a machine of H100s that give memory as measured; calls cost the host nothing.

    Args:
        figures: of the calibration, in place of what was measured.
    """
    calibration = replace(find_calibration("h100").without_call_costs(), **figures)
    profile = replace(PROFILES["h100-80g"], calibration=calibration)
    return Machine.create([profile] * count, folder / "measured", driver_version())


#: Before a program's own code: ``used()``, the bytes that the device has given.
START = """
context = open_context()
driver = cuda
def used():
    free, total = check(cuda.cuMemGetInfo())
    return total - free
begun = used()
def grew(): return used() - begun
"""


def said_by(machine: Machine, code: str) -> Any:
    """Returns what a program says last with ``say(value=…)``."""
    return json.loads(run(machine, START + code).splitlines()[-1])["value"]
