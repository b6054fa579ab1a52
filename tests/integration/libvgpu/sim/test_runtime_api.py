"""Programs of the runtime API on a simulated GPU: with the whole of it, and with a slice.

A C program is linked with each of NVIDIA's runtime libraries that tests have the headers of. It
starts on a driver whose private tables that library accepts, and is charged like any other one.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from libvgpu.sim import PROFILES, acquire, parse_spec, release
from support import Compile
from support.ended import run_to_end
from support.shim.cuda_names import NEWEST, includes, versions
from support.shim.slices import make_slice
from support.sim.measured import measured_machine

MIB, GIB = 1 << 20, 1 << 30
KERNEL_MS = 5
CODE_BYTES = 64 * MIB  # of the program's kernel, at its first launch
#: What the program's streams take.
STREAM_BYTES = 2 * MIB
INSUFFICIENT_DRIVER = 35

SHARED = [(version, "libcudart.so.*") for version in versions()]
STATIC = [(version, "libcudart_static.a") for version in ("12.9.79", "13.0.96", NEWEST)]


def program(compile_program: Compile, version: str, pattern: str) -> Path:
    """Returns the program, linked with the library of that name and version."""
    headers = includes(version)
    if headers is None:
        pytest.fail(f"no runtime library {version}: `make test` fetches it")
    (library,) = (headers.parent / "lib").glob(pattern)
    where = (f"-L{library.parent}", f"-Wl,-rpath,{library.parent}", f"-l:{library.name}")
    return compile_program("runtime_client.c", flags=(*where, "-ldl", "-lrt", "-lpthread"))


def seen(command: Path, environment: dict[str, str]) -> Any:
    done = run_to_end([command], env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("version", "pattern"), SHARED + STATIC)
@pytest.mark.parametrize("is_slice", [False, True], ids=["whole", "slice"])
def test_a_program_starts_and_takes_what_it_takes_on_a_gpu(
    compile_program: Compile,
    tmp_path: Path,
    version: str,
    pattern: str,
    is_slice: bool,
) -> None:
    command = program(compile_program, version, pattern)
    machine = measured_machine(tmp_path, 1 if is_slice else 2)
    part = make_slice(machine, tmp_path / "slice", memory_bytes=4 * GIB)

    found = seen(command, part.environment(shim=is_slice))

    assert (found["driver"], found["count"]) == (13000, 1 if is_slice else 2)
    assert found["is_filled"] and found["is_shared"]
    assert found["launched_ms"] >= KERNEL_MS
    assert found["graph_ms"] >= 2 * KERNEL_MS
    begun = PROFILES["h100-80g"].context_bytes + 4 * MIB
    assert found["before_launch_bytes"] == begun
    assert found["launched_bytes"] == begun + CODE_BYTES + STREAM_BYTES
    assert found["reset_bytes"] == begun


@pytest.mark.parametrize(
    ("release_of", "version", "answer"),
    [
        ("cuda11.8", "11.8.89", 0),
        ("cuda11.8", "12.4.127", INSUFFICIENT_DRIVER),
        ("cuda12.4", "12.9.79", 0),  # of one major version
        ("cuda12.4", "13.0.96", INSUFFICIENT_DRIVER),
    ],
)
def test_a_library_newer_than_the_driver_says_so(
    compile_program: Compile, tmp_path: Path, release_of: str, version: str, answer: int
) -> None:
    machine = acquire(parse_spec(f"h100/{release_of}"))
    try:
        command = program(compile_program, version, "libcudart.so.*")
        done = run_to_end([command], env=machine.environment(dict(os.environ)))
    finally:
        release(machine)

    assert (done.returncode == 0) is (answer == 0), done.stderr
    assert answer == 0 or f"cudaGetDeviceCount(&count) answered {answer}" in done.stderr
