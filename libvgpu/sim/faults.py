"""Things that go wrong on request, on a simulated machine.

The machine file keeps them next to its state; every driver call looks there (sim/core/faults.c,
sim/driver/fault.c). Whoever injects holds a lock on the machine file, so that two at once do not
undo each other's.
"""

import functools
import re
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..artifacts import PACKAGE
from ..errors import UsageError

if TYPE_CHECKING:
    from .machine import Machine

ECC_UNCORRECTABLE = 214
DEVICE_UNAVAILABLE = 46
#: XIDs that tell of a memory error that could not be corrected.
UNCORRECTABLE_XIDS = (48, 63, 64, 94, 95)
XID_LOST = 79


#: Of an `NvmlFault`: every function, and a call that does not return.
EVERY_FUNCTION = "*"
HANGS = -1  # SIM_NVML_HANGS
MOST_NVML_FAULTS = 4  # SIM_NVML_FAULTS


@dataclass(frozen=True, slots=True)
class NvmlFault:
    """What NVML answers for one GPU instead of what is so.

    Attributes:
        function: what the names of the functions begin with, or `EVERY_FUNCTION`.
        answer: NVML's number of an error; `HANGS` while the calls do not return.
    """

    function: str
    answer: int


@dataclass(frozen=True, slots=True)
class DeviceFaults:
    """What goes wrong on one GPU.

    Attributes:
        lost: it has fallen off the bus.
        broken_code: the CUresult of contexts begun until ``broken_ns``; 0 for none.
        broken_ns: on CLOCK_MONOTONIC.
        failing_allocations: so many of the next ones find no memory.
        nvml: the first that is for a function counts.
    """

    lost: bool = False
    broken_code: int = 0
    broken_ns: int = 0
    failing_allocations: int = 0
    nvml: tuple[NvmlFault, ...] = ()


@dataclass(frozen=True, slots=True)
class CallFaults:
    """What goes wrong in every driver call of every process.

    Attributes:
        delay_ns: each takes this much longer.
        code: the CUresult that calls answer instead of working.
        code_count: so many of the next ones.
    """

    delay_ns: int = 0
    code: int = 0
    code_count: int = 0


@functools.cache
def curesults() -> dict[str, int]:
    """Returns the error codes of the driver API by name."""
    text = (PACKAGE / "include/vgpu/cuda_api.h").read_text()
    found = re.findall(r"^\s*X\((CUDA_ERROR_\w+), (\d+),", text, re.M)
    return {name: int(value) for name, value in found}


@functools.cache
def nvml_errors() -> dict[str, int]:
    """Returns the error codes of NVML by name."""
    text = (PACKAGE / "include/vgpu/nvml_api.h").read_text()
    return {name: int(value) for name, value in re.findall(r"X\((NVML_ERROR_\w+), (\d+),", text)}


@functools.cache
def nvml_functions() -> frozenset[str]:
    """Returns the functions of NVML that the simulated one works for."""
    text = (PACKAGE / "include/vgpu/nvml_api.h").read_text()
    return frozenset(re.findall(r"^nvmlReturn_t (nvml\w+)\(", text, re.M))


def _change(machine: "Machine", index: int, **fields: Any) -> None:
    with machine.locked():
        machine.set_device_faults(index, replace(machine.device_faults(index), **fields))


def inject_xid(machine: "Machine", index: int, xid: int) -> None:
    """Raises an XID on a GPU, with what such an error does to its programs.

    One of `UNCORRECTABLE_XIDS` counts as an uncorrectable ECC error and breaks the contexts begun
    so far; 79 loses the GPU; any other is an event only.
    """
    if xid in UNCORRECTABLE_XIDS:
        _change(machine, index, broken_code=ECC_UNCORRECTABLE, broken_ns=time.monotonic_ns())
        machine.raise_event(index, "ecc_double", 0)
    elif xid == XID_LOST:
        _change(machine, index, lost=True)
    machine.raise_event(index, "xid", xid)


def inject_lost(machine: "Machine", index: int) -> None:
    """Has a GPU fall off the bus, which is XID 79."""
    inject_xid(machine, index, XID_LOST)


def recover(machine: "Machine", index: int) -> None:
    """Brings a lost GPU back; the contexts it had stay broken."""
    _change(
        machine, index, lost=False, broken_code=DEVICE_UNAVAILABLE, broken_ns=time.monotonic_ns()
    )


def fail_allocations(machine: "Machine", index: int, count: int) -> None:
    """Has the next ``count`` allocations on a GPU find no memory."""
    _change(machine, index, failing_allocations=count)


def set_nvml(machine: "Machine", index: int, function: str, answer: int) -> None:
    """Has NVML's functions whose names begin so answer an error for a GPU, or hang (`HANGS`).

    Raises:
        UsageError: there are `MOST_NVML_FAULTS` others.
    """
    with machine.locked():
        before = machine.device_faults(index)
        nvml = [each for each in before.nvml if each.function != function]
        if len(nvml) == MOST_NVML_FAULTS:
            raise UsageError(
                f"GPU {index} has {MOST_NVML_FAULTS} faults of NVML, which is the most: clear them"
            )
        nvml.append(NvmlFault(function, answer))
        machine.set_device_faults(index, replace(before, nvml=tuple(nvml)))


def delay_calls(machine: "Machine", delay_ns: int) -> None:
    """Has every driver call take longer."""
    with machine.locked():
        machine.set_call_faults(replace(machine.call_faults(), delay_ns=delay_ns))


def fail_calls(machine: "Machine", code: int, count: int) -> None:
    """Has the next ``count`` driver calls answer a CUresult."""
    with machine.locked():
        machine.set_call_faults(replace(machine.call_faults(), code=code, code_count=count))


def clear(machine: "Machine", index: int | None = None) -> None:
    """Ends what was injected: on one GPU, or everything. Counts of ECC errors stay."""
    with machine.locked():
        for device in machine.devices:
            if index in (None, device.index):
                machine.set_device_faults(device.index, DeviceFaults())
        if index is None:
            machine.set_call_faults(CallFaults())
