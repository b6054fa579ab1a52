"""Programs from PyPI that run to their end on a simulated GPU, or on a slice of one."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from libvgpu.sim import PROFILES
from support import ROOT
from support.ended import run_to_end

CLIENTS = ROOT / "tests/clients"
PROFILE = PROFILES["h100-80g"]
MIB, GIB = 1 << 20, 1 << 30
LIMIT_BYTES = 4 * GIB
REFUSAL = "libvgpu: out of memory: "

WHOLE = ("sim", "run", PROFILE.name)
SLICE = ("run", "--simulate", PROFILE.name, "--memory", "4GiB", "--core", "50")
TOTAL_BYTES = {WHOLE: PROFILE.memory_bytes, SLICE: LIMIT_BYTES}
both_places = pytest.mark.parametrize("place", [WHOLE, SLICE], ids=["whole", "slice"])

Run = Callable[..., str]


def made_by_make(environment: str, name: str) -> str:
    """Returns a program of one of the environments that the Makefile makes for clients."""
    path = ROOT / "build/clients" / environment / "bin" / name
    if not path.exists():
        pytest.fail(f"{path} is missing: `make test` makes what the client tests need")
    return str(path)


def runner(folder: Path) -> Run:
    """Returns ``run(place, *command)``: runs to a good end on `WHOLE` or `SLICE`, gives stdout."""
    (folder / "runtime").mkdir(mode=0o700)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "XDG_RUNTIME_DIR": str(folder / "runtime"),
        "VGPU_RUN_DIR": str(folder / "run"),
        "PYTHONPATH": str(ROOT),  # of vgpuctl; holds no bindings that would hide the client's own
    }

    def run(place: tuple[str, ...], *command: str | Path) -> str:
        done = run_to_end(
            [sys.executable, "-m", "vgpuctl", *place, "--", *map(str, command)], env=environment
        )
        assert done.returncode == 0, done.stderr
        # a slice says what it refuses, and nothing else is said
        said = [line for line in done.stderr.splitlines() if not line.startswith(REFUSAL)]
        assert said == []
        return done.stdout

    return run
