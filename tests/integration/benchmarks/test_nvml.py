"""What benchmarks ask NVML by ctypes is what the machine's own books say."""

import json
import os
import sys
from pathlib import Path

from libvgpu.sim import Machine
from support import CLIENT_PATH
from support.ended import run_to_end
from support.sim.releases import machine_of

CODE = """
import json, os
from benchmarks.nvml import open_nvml
from libvgpu.errors import VgpuError
from support.shim.cuda_client import *
open_context()
check(driver.cuMemAlloc(5 << 20))
with open_nvml() as nvml:
    device = nvml.device(0)
    try:
        nvml.device(7)
    except VgpuError as error:
        why = error.message
    print(json.dumps({
        "count": nvml.device_count(), "name": device.name(), "uuid": device.uuid(),
        "memory": device.memory_bytes(), "bandwidth": device.memory_bytes_per_second(),
        "processes": [(each.pid == os.getpid(), each.used_bytes) for each in device.processes()],
        "why": why,
    }))
"""


def test_a_gpu_and_its_processes_are_told_as_they_are(costly_machine: Machine) -> None:
    done = run_to_end(
        [sys.executable, "-c", CODE],
        env=costly_machine.environment({**os.environ, "PYTHONPATH": CLIENT_PATH}),
    )
    assert done.returncode == 0, done.stderr
    told, (device,) = json.loads(done.stdout), costly_machine.devices

    profile = device.profile
    held = profile.context_bytes + (5 << 20)
    assert (told["count"], told["name"], told["uuid"]) == (1, profile.product, device.uuid)
    assert told["memory"][0] == profile.memory_bytes
    assert told["processes"] == [[True, held]]
    assert abs(told["bandwidth"] / profile.memory_bytes_per_second - 1) < 0.01
    assert told["why"] == (
        "NVML cannot be used: nvmlDeviceGetHandleByIndex_v2 answers 2 (Invalid Argument)"
    )


LACKING = """
from benchmarks.nvml import open_nvml
with open_nvml() as nvml:
    nvml.device(0).memory_bytes_per_second()
"""


def test_a_function_that_the_driver_lacks_is_named(tmp_path: Path) -> None:
    machine = machine_of("470", tmp_path / "machine")
    environment = {**os.environ, "PYTHONPATH": CLIENT_PATH}

    done = run_to_end([sys.executable, "-c", LACKING], env=machine.environment(environment))

    assert "nvmlDeviceGetMemoryBusWidth answers 13 (Function Not Found)" in done.stderr
