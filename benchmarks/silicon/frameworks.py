"""What frameworks have of a GPU that the ledger does not know, step by step, under a slice.

A program of the framework's own does a step and waits; then what the GPU says that its process has
is held against what the slice's ledger says. Only what is installed next to the GPU is asked:
nothing is downloaded for this.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from libvgpu.limits import ContainerLimits, DeviceLimit, Family

from ..clients import read_line
from ..figure import Measurement
from ..gpu import Gpu
from ..repeats import say
from ..slices import create, used_bytes
from .holding import in_slice

_STEPS = Path(__file__).resolve().parent / "framework_steps"
_RUNNER = _STEPS / "run_steps.py"
_GIB, _MIB = 1 << 30, 1 << 20
_SLICE_BYTES = 16 * _GIB
#: The first step loads the framework, from a slow disk perhaps.
_STEP_SECONDS = 180.0
_FIND_SECONDS = 60
_END_SECONDS = 5.0
#: Of our environment, what a framework needs to be found and to keep what it compiles.
_PASSED = ("PATH", "HOME", "PYTHONPATH", "LD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True)
class Seen:
    """What there was.

    Attributes:
        mib: on silicon with the shim of 2026-11-22, which is history; or on the simulated GPU.
        tolerance: how far off from the simulated GPU's a value may be; None: it is history.
    """

    mib: float
    tolerance: float | None = None


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework and its steps.

    Attributes:
        name: as it is shown.
        module: which a Python that has it can import.
        steps: the file with them, for run_steps.py.
        arguments: of that file.
        unaccounted: of a step: what the ledger did not know after it.
        grown: of a step: by how much more that was than before it.
    """

    name: str
    module: str
    steps: Path
    arguments: tuple[str, ...] = ()
    unaccounted: Mapping[str, Seen] = field(default_factory=dict)
    grown: Mapping[str, Seen] = field(default_factory=dict)


#: Of the versions there: PyTorch 2.11 (112 to 182 MiB in all, by program), CuPy 14, JAX 0.11.
FRAMEWORKS = (
    Framework(
        "PyTorch",
        "torch",
        _STEPS / "pytorch_steps.py",
        unaccounted={"graph": Seen(147)},
        grown={"matmul fp16": Seen(93), "convolution": Seen(18)},
    ),
    Framework("CuPy", "cupy", _STEPS / "cupy_steps.py", unaccounted={"FFT": Seen(10)}),
    Framework("JAX", "jax", _STEPS / "jax_steps.py", unaccounted={"convolution": Seen(36)}),
)

#: Programs of the runtime API; what they use of Python, every Python has.
RUNTIMES = tuple(
    Framework(
        f"cudart {version.partition('.')[0]}",
        "ctypes",
        _STEPS / "cudart_steps.py",
        (version,),
        dict.fromkeys(("cudaFree(0)", "cudaDeviceReset", "cudaMalloc"), Seen(0, 2)),
    )
    for version in ("11.0", "12", "13")
)


def measure(
    gpu: Gpu,
    frameworks: Sequence[Framework] = FRAMEWORKS,
    *,
    quick: bool = False,
) -> list[Measurement]:
    """Measures every step of every framework that is installed; the others are said to be missing.

    Args:
        gpu: where, with nobody else on it.
        frameworks: which.
        quick: take the first that is installed, without its slow steps.

    Raises:
        VgpuError: the slice cannot be made.
    """
    found = []
    for framework in frameworks:
        python = find_python(framework.module)
        if python is None:
            found.append(_lack(framework, gpu, f"no python3 here has {framework.module}"))
        else:
            say(f"{framework.name} ({python})")
            found += _measure(framework, gpu, python, quick=quick)
            if quick:
                break
    return found


def find_python(module: str) -> str | None:
    """Returns the interpreter that has a module: this one or the machine's ``python3``."""
    look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    candidates = dict.fromkeys(filter(None, (sys.executable, shutil.which("python3"))))
    for python in candidates:
        try:
            asked = subprocess.run([python, "-c", look], capture_output=True, timeout=_FIND_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if asked.returncode == 0:
            return python
    return None


def _lack(framework: Framework, gpu: Gpu, why: str) -> Measurement:
    return Measurement(
        framework.name, gpu.title, "unaccounted", "MiB", None, note=why, needs_tool=True
    )


def _measure(framework: Framework, gpu: Gpu, python: str, *, quick: bool) -> list[Measurement]:
    found: list[Measurement] = []
    with tempfile.TemporaryDirectory(prefix="vgpu-silicon-") as name:
        slice_directory, log = Path(name, "slice"), Path(name, "log")
        limit = DeviceLimit(
            gpu.uuid,
            min(_SLICE_BYTES, gpu.memory_bytes),
            core_percent=50,
            weight=50,
        )
        create(slice_directory, ContainerLimits("bench", Family.VGPU, (limit,)))
        passed = {key: os.environ[key] for key in _PASSED if key in os.environ}
        environment = gpu.environment(passed) | in_slice(slice_directory)
        command = [python, str(_RUNNER), str(framework.steps), *([] if quick else ["slow"])]
        command += framework.arguments
        before_bytes, before_mib = gpu.used_bytes(), 0.0
        for step in _steps(command, environment, log):
            if step.name is None:
                return [*found, _lack(framework, gpu, f"it cannot be used: {step.failure}")]
            if step.failure:
                case = f"{framework.name}: {step.name}"
                found.append(
                    Measurement(case, gpu.title, "unaccounted", "MiB", None, note=step.failure)
                )
                continue
            device_bytes, note = gpu.process_bytes(step.pid), ""
            if device_bytes is None:
                device_bytes = gpu.used_bytes() - before_bytes
                note = "by what the whole GPU has given since before it"
            now_mib = (device_bytes - used_bytes(slice_directory)) / _MIB
            found += judged(framework, gpu.title, step.name, now_mib, before_mib, note)
            before_mib = now_mib
    return found


def judged(
    framework: Framework, subject: str, step: str, now_mib: float, before_mib: float, note: str = ""
) -> list[Measurement]:
    """Returns what a step left unaccounted, next to what it was where that is known."""
    case, seen = f"{framework.name}: {step}", framework.unaccounted.get(step)
    found = [_against(case, subject, "unaccounted", now_mib, seen, note)]
    if (grown := framework.grown.get(step)) is not None:
        more_mib = now_mib - before_mib
        found.append(_against(case, subject, "unaccounted, grown", more_mib, grown, note))
    return found


def _against(
    case: str, subject: str, quantity: str, mib: float, seen: Seen | None, note: str
) -> Measurement:
    told = Measurement(case, subject, quantity, "MiB", round(mib, 2), note=note)
    if seen is None:
        return told
    if seen.tolerance is None:
        return replace(told, history=seen.mib)
    return replace(told, simulated=seen.mib, tolerance=seen.tolerance)


@dataclass(frozen=True, slots=True)
class _Step:
    """What run_steps.py said: a step's name, None where there is none yet, and why it failed."""

    pid: int
    name: str | None
    failure: str = ""


def _steps(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Iterator[_Step]:
    """Yields each step once it is done; the process waits meanwhile, and is ended at last."""
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    try:
        assert process.stdin is not None
        next_name = "the first step"
        while line := read_line(process, _STEP_SECONDS):
            said = json.loads(line)
            if said.get("end"):
                return
            yield _Step(process.pid, said.get("step"), said.get("error", ""))
            next_name = f"what follows {said.get('step')}"
            process.stdin.write("go\n")
            process.stdin.flush()
        yield _Step(process.pid, next_name, _why_silent(process, log))
    finally:
        process.kill()
        process.communicate()


def _why_silent(process: "subprocess.Popen[str]", log: Path) -> str:
    try:
        status = process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        return f"it did not end within {_STEP_SECONDS:g} s"
    last = " ".join(log.read_text(errors="replace")[-300:].split())
    return f"it ended with status {status}: {last or 'nothing on stderr'}"
