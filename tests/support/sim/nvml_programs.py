"""Small NVML programs on a simulated machine, and what is injected into it for all of them."""

import json
import subprocess
from typing import Any

from libvgpu._native import ffi, lib
from libvgpu.sim import Machine
from support.lines import expect
from support.sim.programs import run

XID, ECC_SINGLE, ECC_DOUBLE = 1, 2, 3
GPU_IS_LOST = 15

NVML_PRELUDE = """
import pynvml as nvml
nvml.nvmlInit()
handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
def refusal(function, *arguments):
    try:
        return ["granted", str(function(*arguments))]
    except nvml.NVMLError as error:
        return error.value
"""
EVENT_PRELUDE = (
    NVML_PRELUDE
    + """
def wait(events, timeout_ms=60_000):
    try:
        data = nvml.nvmlEventSetWait_v2(events, timeout_ms)
    except nvml.NVMLError_Timeout:
        return None
    device = [h.value for h in map(lambda h: ctypes.cast(h, ctypes.c_void_p), handles)].index(
        ctypes.cast(data.device, ctypes.c_void_p).value)
    return [device, data.eventType, data.eventData]
def registered(*wanted):
    events = nvml.nvmlEventSetCreate()
    for device, types in wanted:
        nvml.nvmlDeviceRegisterEvents(handles[device], types, events)
    return events
def ready(): print("ready", flush=True); sys.stdin.readline()
XID, SINGLE, DOUBLE = (nvml.nvmlEventTypeXidCriticalError, nvml.nvmlEventTypeSingleBitEccError,
                       nvml.nvmlEventTypeDoubleBitEccError)
"""
)


def raise_event(machine: Machine, device: int, kind: int, data: int = 0) -> None:
    assert lib.sim_machine_raise_event(machine._native, device, kind, data) == 0


def lose(machine: Machine, device: int) -> None:
    faults = ffi.new("struct sim_device_faults *", {"lost": 1})
    assert lib.sim_machine_write_device_faults(machine._native, device, faults) == 0


def until_ready(program: subprocess.Popen[str]) -> None:
    expect(program)


def answers(machine: Machine, code: str) -> Any:
    return json.loads(run(machine, NVML_PRELUDE + code))
