"""Starting small CUDA programs on a simulated machine, without the shim."""

import os
import subprocess
import sys
from collections.abc import Mapping

from libvgpu.sim import Machine

from . import ROOT

#: Longest that any of these programs may run.
PROGRAM_SECONDS = 60

PRELUDE = """
import ctypes, json, os, sys, time
from cuda.bindings import driver as cuda
from support.cuda_client import *
def say(**values): print(json.dumps(values), flush=True)
"""


def start(
    machine: Machine, code: str, env: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Starts a Python program with the names of `PRELUDE`; it talks through pipes."""
    base = {key: value for key, value in os.environ.items() if not key.startswith("CUDA_")}
    base["PYTHONPATH"] = f"{ROOT / 'tests'}:{ROOT}"
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + code],
        env={**machine.environment(base), **(env or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(program: subprocess.Popen[str], tell: str = "") -> str:
    """Waits for a program's good end and returns what it printed."""
    try:
        out, err = program.communicate(tell, timeout=PROGRAM_SECONDS)
    finally:
        program.kill()
    assert program.returncode == 0, err
    return out


def run(machine: Machine, code: str, env: Mapping[str, str] | None = None) -> str:
    """Runs a program to its end and returns what it printed."""
    return finish(start(machine, code, env))
