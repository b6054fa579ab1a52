"""An unmodified CUDA driver-API client for tests: what programs under a slice are written with.

Imported by the small programs that tests start (``PYTHONPATH`` holds ``tests``); every function
raises `CudaError` with the driver's code where the driver refuses.
"""

import ctypes
import sys
import time
from typing import Any

from cuda.bindings import driver

SPIN_PTX = b"""
.version 7.0
.target sm_50
.address_size 64
.visible .entry spin_ns(.param .u64 duration_ns)
{
    .reg .pred %p;
    .reg .u64 %begin, %now, %wanted;
    ld.param.u64 %wanted, [duration_ns];
    mov.u64 %begin, %globaltimer;
again:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %begin;
    setp.lt.u64 %p, %now, %wanted;
    @%p bra again;
    ret;
}
\0"""
MIB, GIB = 1 << 20, 1 << 30
OUT_OF_MEMORY = 2
CONTEXT_PARAMETERS_SINCE = 12050  # of cuCtxCreate: its version 4


class CudaError(Exception):
    """A call that the driver refused; ``code`` is its CUresult."""

    def __init__(self, code: int) -> None:
        super().__init__(f"CUDA error {code}")
        self.code = code


def check(answer: tuple[Any, ...]) -> Any:
    """Returns the result of a binding's answer, or raises `CudaError`."""
    if int(answer[0]) != 0:
        raise CudaError(int(answer[0]))
    return answer[1] if len(answer) == 2 else answer[1:]


def code(answer: tuple[Any, ...]) -> int:
    """Returns the CUresult of a binding's answer."""
    return int(answer[0])


def open_context(device: int = 0) -> Any:
    """Initialises CUDA and makes the device's primary context current."""
    check(driver.cuInit(0))
    context = check(driver.cuDevicePrimaryCtxRetain(check(driver.cuDeviceGet(device))))
    check(driver.cuCtxSetCurrent(context))
    return context


def create_context(device: int = 0) -> tuple[Any, ...]:
    """Returns what cuCtxCreate answers; the bindings' own needs a driver of CUDA 12.5."""
    if check(driver.cuDriverGetVersion()) >= CONTEXT_PARAMETERS_SINCE:
        return tuple(driver.cuCtxCreate(None, 0, device))
    context = ctypes.c_void_p()
    made = ctypes.CDLL("libcuda.so.1").cuCtxCreate_v2(ctypes.byref(context), 0, int(device))
    return driver.CUresult(made), driver.CUcontext(context.value or 0)


def allocate_until_refused(piece_bytes: int) -> tuple[list[Any], int]:
    """Returns the pieces that were granted and the code of the refusal."""
    pieces: list[Any] = []
    while True:
        answer = driver.cuMemAlloc(piece_bytes)
        if int(answer[0]) != 0:
            return pieces, int(answer[0])
        pieces.append(answer[1])


def look(name: str) -> None:
    """Stops the calling program until its test has looked (`support.shim.walk`)."""
    print(f"look {name}", flush=True)
    sys.stdin.readline()


class Spinner:
    """Launches kernels that take a given GPU time, on a stream of its own."""

    def __init__(self, kernel_ns: int) -> None:
        self.kernel_ns = kernel_ns
        self._argument = ctypes.c_ulonglong(kernel_ns)
        self._arguments = (ctypes.c_void_p * 1)(ctypes.addressof(self._argument))
        module = check(driver.cuModuleLoadData(SPIN_PTX))
        self._function = check(driver.cuModuleGetFunction(module, b"spin_ns"))
        self.stream = check(driver.cuStreamCreate(0))

    def launch(self) -> None:
        address = ctypes.addressof(self._arguments)
        check(driver.cuLaunchKernel(self._function, 1, 1, 1, 1, 1, 1, 0, self.stream, address, 0))

    def wait(self) -> None:
        check(driver.cuStreamSynchronize(self.stream))

    def share_percent(self, seconds: float, *, wait_each: bool = False) -> float:
        """Returns the GPU time of the completed kernels ÷ the time they took, in percent."""
        start, count = time.monotonic(), 0
        while time.monotonic() - start < seconds:
            self.launch()
            count += 1
            if wait_each:
                self.wait()
        self.wait()
        return 100 * count * self.kernel_ns / 1e9 / (time.monotonic() - start)
