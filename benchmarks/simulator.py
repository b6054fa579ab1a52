"""What the simulated GPU itself costs, so that one knows what is measured on top of it.

A small C client (``native/sim_client.c``) calls the simulated driver and takes the time by itself;
one run of it is one sample. It runs on a fresh machine and on one that has seen more processes than
it has places for, where every change of the shared state is larger.
"""

import os
import subprocess
from pathlib import Path

from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.errors import VgpuError
from libvgpu.sim import Machine, ideal_profile

from .figure import Figure, Measurement, Options, spread
from .nulldriver import built_client

_PROFILE = "h100-80g"
_FORMER_PROCESSES = 70
_RUN_TIMEOUT_SECONDS = 60
_SIZES_BYTES = {"64 KiB": 1 << 16, "256 MiB": 1 << 28}
_TITLES = {
    "launch": "cuLaunchKernel",
    "alloc": "cuMemAlloc + cuMemFree",
    "async": "cuMemAllocAsync + cuMemFreeAsync",
    "late": "cuCtxSynchronize behind 1 ms of work",
}
_SIZELESS = ("launch", "late")


def _run(client: Path, machine: Machine, *arguments: str) -> dict[str, float]:
    base = {"PATH": os.defpath}
    result = subprocess.run(
        [client, *arguments],
        env=machine.environment(base),
        capture_output=True,
        text=True,
        timeout=_RUN_TIMEOUT_SECONDS,
    )
    if result.returncode != 0:
        raise VgpuError(f"{client.name} ended with status {result.returncode}: {result.stderr}")
    return {word: float(ns) for word, ns in (line.split() for line in result.stdout.splitlines())}


def measure(options: Options) -> list[Measurement]:
    """Takes the figure.

    Raises:
        VgpuError: there is no compiler, or the client fails.
    """
    results = []
    with built_client(SIM_LIBRARY_DIR / "libcuda.so.1", "sim_client") as client:
        for state in ("fresh machine", "used machine"):
            machine = Machine.create([ideal_profile(_PROFILE)], client.parent / state.split()[0])
            for _ in range(_FORMER_PROCESSES if state == "used machine" else 0):
                _run(client, machine, "0")
            for title, size_bytes in _SIZES_BYTES.items():
                runs = [_run(client, machine, str(size_bytes)) for _ in range(options.rounds)]
                for word, call in _TITLES.items():
                    if word in _SIZELESS and title != next(iter(_SIZES_BYTES)):
                        continue
                    case = f"{call}, {state}" if word in _SIZELESS else f"{call}, {title}, {state}"
                    quantity = "lateness" if word == "late" else "time"
                    samples = [run[word] for run in runs]
                    results.append(spread(case, "simulated driver", quantity, "ns", samples))
    return results


FIGURE = Figure(
    name="simulator",
    summary="what a call of the simulated driver costs, and how late a wait on it returns",
    label="simulated GPU, host time",
    measure=measure,
)
