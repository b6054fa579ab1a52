"""A slice of one MIG instance: CUDA and NVML name it by its own UUID."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.region import create
from libvgpu.sim import Machine, parse_spec
from support.ended import run_to_end
from support.shim.slices import Slice
from support.sim.driver import driver_version

MIB = 1 << 20
LIMIT = 256 * MIB
OUT_OF_MEMORY = 2
FULL = [2 * MIB, 2 * MIB, []]  # what gives nothing

LOOK = """
import json, os
import pynvml as nvml
from support.shim.cuda_client import *
check(driver.cuInit(0))
nvml.nvmlInit()
gpu = nvml.nvmlDeviceGetHandleByIndex(0)
handles = [gpu, *(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, i) for i in range(2))]
def about(handle):
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return [memory.total, memory.used, [
        [p.pid == os.getpid(), p.usedGpuMemory, p.gpuInstanceId, p.computeInstanceId]
        for p in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]]
answer = {"total": check(driver.cuDeviceTotalMem(0))}
answer["retained"] = int(driver.cuDevicePrimaryCtxRetain(0)[0])
if answer["retained"] == 0:
    open_context()
    pieces, answer["code"] = allocate_until_refused(32 << 20)
    answer["granted"] = len(pieces) * (32 << 20)
answer["nvml"] = [about(handle) for handle in handles]
print(json.dumps(answer))
"""


@pytest.fixture
def part(tmp_path: Path) -> Slice:
    """A slice of the second of two instances of a GPU."""
    spec = parse_spec("h100-80g/mig=3g.40gb*2")
    machine = Machine.create(spec.profiles, tmp_path / "machine", driver_version())
    second = machine.instances[1]
    limit = DeviceLimit(
        second.uuid,
        LIMIT + second.profile.context_bytes,
        context_bytes=second.profile.context_bytes,
    )
    create(tmp_path / "slice", ContainerLimits("mig", Family.VGPU, (limit,)))
    return Slice(machine, tmp_path / "slice")


def look(part: Slice, instance: int) -> dict[str, Any]:
    environment = part.environment() | {
        "CUDA_VISIBLE_DEVICES": part.machine.instances[instance].uuid
    }
    done = run_to_end([sys.executable, "-c", LOOK], env=environment)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def test_an_instance_shows_and_grants_its_limit(part: Slice) -> None:
    total = LIMIT + part.machine.instances[1].profile.context_bytes

    said = look(part, 1)

    assert (said["total"], said["granted"], said["code"]) == (total, LIMIT, OUT_OF_MEMORY)
    assert said["nvml"] == [FULL, FULL, [total, total, [[True, total, 2, 0]]]]


def test_an_instance_that_the_slice_does_not_name_gives_nothing(part: Slice) -> None:
    total = LIMIT + part.machine.instances[1].profile.context_bytes

    said = look(part, 0)

    assert (said["total"], said["retained"]) == (FULL[0], OUT_OF_MEMORY)
    assert said["nvml"] == [FULL, FULL, [total, 0, []]]
