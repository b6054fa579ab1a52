"""Programs from PyPI, as they are, on a simulated GPU: with the whole of it, and with a slice.

What they run is in `tests/clients`. A slice is shown in place of the GPU, also by monitors that
know nothing of it.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.region import create
from libvgpu.sim import Machine
from support.ended import run_to_end
from support.shim.slices import Slice
from support.sim.clients import (
    CLIENTS,
    GIB,
    MIB,
    PROFILE,
    TOTAL_BYTES,
    WHOLE,
    Run,
    both_places,
    made_by_make,
)

HELD_BYTES = 1 * GIB
KERNEL_MS = 5


def python_of(cuda_major: int) -> str:
    """Returns the interpreter whose environment holds the bindings of this CUDA version."""
    return sys.executable if cuda_major == 13 else made_by_make("cuda12", "python")


def tool(name: str) -> str:
    return made_by_make("cuda12", name)


def held(command: str, *arguments: str) -> list[str]:
    """Returns a command that runs a monitor while a process holds `HELD_BYTES`."""
    allocation = [sys.executable, str(CLIENTS / "allocation.py"), str(HELD_BYTES)]
    return [*allocation, tool(command), *arguments]


both_versions = pytest.mark.parametrize("cuda_major", [12, 13])


@both_places
@both_versions
def test_a_program_of_the_driver_api(run: Run, place: tuple[str, ...], cuda_major: int) -> None:
    seen = json.loads(run(place, python_of(cuda_major), CLIENTS / "driver_client.py"))

    total_bytes = TOTAL_BYTES[place]
    assert (seen["bindings"], seen["driver"], seen["count"]) == (cuda_major, 13000, 1)
    assert (seen["name"], seen["major"]) == (PROFILE.product, 9)
    assert seen["known_attributes"] > 100
    assert seen["total_bytes"] == total_bytes
    assert total_bytes - 2 * PROFILE.context_bytes <= seen["free_bytes"] < total_bytes
    assert 0 <= seen["free_bytes"] - seen["granted_bytes"] < 256 * MIB
    assert seen["graph_nodes"] == 3
    for name, kernels in (("launched", 1), ("extended", 1), ("library", 1), ("graph", 6)):
        assert seen[f"{name}_ms"] >= KERNEL_MS * kernels, name


@both_places
def test_a_program_of_cuda_core(run: Run, place: tuple[str, ...]) -> None:
    seen = json.loads(run(place, python_of(12), CLIENTS / "core_client.py"))

    assert (seen["capability"], seen["processors"]) == ([9, 0], PROFILE.sm_count)
    assert seen["bus_id"] == "0000:10:00.0"  # by the runtime API
    assert seen["shared"] == [True, 5]  # the importing process saw memory of another one, and what
    for name, kernels in (("launched", 1), ("captured", 4), ("defined", 1)):
        assert seen[f"{name}_ms"] >= KERNEL_MS * kernels, name


@both_places
@both_versions
def test_a_program_of_nvml(run: Run, place: tuple[str, ...], cuda_major: int) -> None:
    seen = json.loads(run(place, python_of(cuda_major), CLIENTS / "nvml_client.py"))

    (gpu,) = seen["gpus"]
    assert (seen["driver"], seen["cuda"]) == ("580.65.06", 13000)
    assert (gpu["name"], gpu["bus_id"]) == (PROFILE.product, "00000000:10:00.0")
    assert gpu["total_bytes"] == [TOTAL_BYTES[place]] * 2
    assert (gpu["percent"], gpu["processes"]) == (0, [])


@both_places
def test_gpustat_in_numbers(run: Run, place: tuple[str, ...]) -> None:
    seen: dict[str, Any] = json.loads(run(place, *held("gpustat", "--json")))

    (gpu,) = seen["gpus"]
    used_mib = (HELD_BYTES + PROFILE.context_bytes) // MIB
    assert (gpu["name"], gpu["utilization.gpu"]) == (PROFILE.product, 0)
    assert (gpu["memory.total"], gpu["memory.used"]) == (TOTAL_BYTES[place] // MIB, used_mib)
    (process,) = gpu["processes"]
    assert process["gpu_memory_usage"] == used_mib
    assert "allocation.py" in " ".join(process["full_command"])


@both_places
def test_gpustat_in_words(run: Run, place: tuple[str, ...]) -> None:
    said = run(place, *held("gpustat", "--no-header", "--no-color", "--show-cmd"))

    used_mib = (HELD_BYTES + PROFILE.context_bytes) // MIB
    assert len(said.splitlines()) == 1
    assert f"[0] {PROFILE.product} |" in said
    assert re.search(rf"\b{used_mib} / *{TOTAL_BYTES[place] // MIB} MB", said)
    assert re.search(rf"\bpython[\d.]*\({used_mib}M\)", said)


@both_places
def test_nvitop(run: Run, place: tuple[str, ...]) -> None:
    said = run(place, *held("nvitop", "-1", "--no-unicode"))

    used_mib = (HELD_BYTES + PROFILE.context_bytes) // MIB
    total = f"{TOTAL_BYTES[place] / GIB:.2f}GiB" if place == WHOLE else "4096MiB"
    assert "Driver Version: 580.65.06" in said
    assert "CUDA Driver Version: 13.0" in said
    assert f"{used_mib}MiB / {total}" in said
    assert re.search(rf"\b\d+ C +\S+ +{used_mib}MiB ", said)


@pytest.mark.parametrize(
    ("monitor", "memory"),
    [
        (("gpustat", "--no-color"), "2 /     2 MB"),
        (("nvitop", "-1", "--no-unicode"), "2.00MiB / 2.00MiB"),
    ],
    ids=["gpustat", "nvitop"],
)
def test_monitors_show_a_gpu_outside_the_slice_as_full(
    machine: Machine, tmp_path: Path, monitor: tuple[str, ...], memory: str
) -> None:
    stranger = DeviceLimit("GPU-00000000-0000-0000-0000-000000000000", GIB)
    create(tmp_path / "slice", ContainerLimits("other", Family.VGPU, (stranger,)))
    part = Slice(machine, tmp_path / "slice")

    done = run_to_end([tool(monitor[0]), *monitor[1:]], env=part.environment())

    assert (done.returncode, done.stderr) == (0, "")
    assert memory in done.stdout
