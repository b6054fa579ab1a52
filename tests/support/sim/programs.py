"""Starting small CUDA programs on a simulated machine, without the shim."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from libvgpu.sim import DeviceBooks, Machine
from support import CLIENT_PATH, warm
from support.lines import expect, start_listening
from support.waiting import PATIENCE_S

WARM_UP_SECONDS = 0.5
WINDOW_SECONDS = 0.9

#: Programs `say` what a test compares, or compare it with `same` themselves. What the driver
#: answers has its own names there, such as ``INVALID_VALUE``.
PRELUDE = """
import ctypes, json, os, sys, time
from cuda.bindings import driver as cuda
from support.shim.cuda_client import *
def say(**values): print(json.dumps(values), flush=True)
def same(got, wanted):
    got, wanted = (json.loads(json.dumps(each)) for each in (got, wanted))
    assert got == wanted, f"{got}, not {wanted}"
globals().update({each.name.removeprefix("CUDA_ERROR_"): int(each) for each in cuda.CUresult})
"""


def start(
    machine: Machine,
    code: str,
    env: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
) -> subprocess.Popen[str]:
    """Starts a Python program with the names of `PRELUDE`; it talks through pipes.

    Args:
        prefix: the command that runs it, such as ``unshare``.
    """
    return start_listening(
        [*prefix, sys.executable, "-c", PRELUDE + code], _environment(machine, env)
    )


def _environment(machine: Machine, env: Mapping[str, str] | None) -> dict[str, str]:
    base = {key: value for key, value in os.environ.items() if not key.startswith("CUDA_")}
    base["PYTHONPATH"] = CLIENT_PATH
    return {**machine.environment(base), **(env or {})}


def finish(program: subprocess.Popen[str], tell: str = "") -> str:
    """Waits for a program's good end and returns what it printed."""
    try:
        out, err = program.communicate(tell, timeout=PATIENCE_S)
    finally:
        program.kill()
    assert program.returncode == 0, err
    return out


def run(machine: Machine, code: str, env: Mapping[str, str] | None = None) -> str:
    """Runs a program to its end and returns what it printed."""
    done = warm.run(["-c", PRELUDE + code], _environment(machine, env))
    assert done.returncode == 0, done.stderr
    return done.stdout


def said_in(machine: Machine, code: str, env: Mapping[str, str] | None = None) -> Any:
    """Returns what a program said, which says one thing."""
    return json.loads(run(machine, code, env))


BUSY_FOR_A_WHILE = """
open_context()
spinner = Spinner({kernel_ns})
end = time.monotonic() + 100  # its test has ended it long before
print("ready", flush=True)
import threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
while time.monotonic() < end:
    spinner.launch()
    {after}
"""


def busy(kernel_ns: int, after: str = "pass") -> str:
    return BUSY_FOR_A_WHILE.format(kernel_ns=kernel_ns, after=after)


def shares(machine: Machine, *codes: str, env: tuple[dict[str, str], ...] = ()) -> list[float]:
    """Returns which part of the window each program had of the device, and lastly all of them."""
    programs = [
        start(machine, code, env[i] if i < len(env) else None) for i, code in enumerate(codes)
    ]
    try:
        for program in programs:
            expect(program)
        time.sleep(WARM_UP_SECONDS)
        first = machine.books()[0]
        time.sleep(WINDOW_SECONDS)
        last = machine.books()[0]
        by_pid = {client.pid: client.busy_ns for client in first.clients}
        parts = []
        for program in programs:
            client = next(c for c in last.clients if c.pid == program.pid)
            parts.append((client.busy_ns - by_pid[program.pid]) / window_ns(first, last))
        return [*parts, (last.busy_ns - first.busy_ns) / window_ns(first, last)]
    finally:
        for program in programs:
            program.kill()
            program.wait(PATIENCE_S)


def window_ns(first: DeviceBooks, last: DeviceBooks) -> int:
    return last.clock_ns - first.clock_ns
