"""A program of the CUDA driver API, as its users write them with `cuda-bindings` 12 and 13.

It goes once through what such programs use, checks what it gets, and prints what the GPU looked
like as JSON. It knows nothing of this project and runs on a real GPU, too.
"""

import ctypes
import importlib.metadata
import json
from collections.abc import Callable
from typing import Any

from cuda.bindings import driver

MIB = 1 << 20
KERNEL_NS = 5_000_000
PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.global .align 4 .b8 table[256];
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


def ok(answer: tuple[Any, ...]) -> Any:
    """Returns what a call gave, or fails with the driver's own words."""
    error, *values = answer
    if error != driver.CUresult.CUDA_SUCCESS:
        _, name = driver.cuGetErrorName(error)
        raise AssertionError(
            f"the driver answered {(name or b'nothing it has a name for').decode()}"
        )
    return values[0] if len(values) == 1 else tuple(values)


def devices() -> tuple[Any, dict[str, Any]]:
    ok(driver.cuInit(0))
    device = ok(driver.cuDeviceGet(0))
    known = 0
    for attribute in driver.CUdevice_attribute:
        error, _ = driver.cuDeviceGetAttribute(attribute, device)
        known += error == driver.CUresult.CUDA_SUCCESS
    capability = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
    return device, {
        "bindings": int(importlib.metadata.version("cuda-bindings").split(".")[0]),
        "driver": ok(driver.cuDriverGetVersion()),
        "count": ok(driver.cuDeviceGetCount()),
        "name": ok(driver.cuDeviceGetName(128, device)).split(b"\0")[0].decode(),
        "uuid": bytes(ok(driver.cuDeviceGetUuid(device)).bytes).hex(),
        "total_bytes": ok(driver.cuDeviceTotalMem(device)),
        "major": ok(driver.cuDeviceGetAttribute(capability, device)),
        "known_attributes": known,
    }


def contexts(device: Any) -> Any:
    """Leaves the primary context current, as the runtime API does."""
    primary = ok(driver.cuDevicePrimaryCtxRetain(device))
    ok(driver.cuCtxSetCurrent(primary))
    if hasattr(driver, "CUctxCreateParams") and "ctxCreateParams" in driver.cuCtxCreate.__doc__:
        own = ok(driver.cuCtxCreate(None, 0, device))
    else:
        own = ok(driver.cuCtxCreate(0, device))
    assert int(ok(driver.cuCtxGetCurrent())) == int(own)
    assert int(ok(driver.cuCtxGetDevice())) == int(device)
    ok(driver.cuCtxPopCurrent())
    assert int(ok(driver.cuCtxGetCurrent())) == int(primary)
    ok(driver.cuCtxDestroy(own))
    ok(driver.cuCtxSynchronize())
    return primary


def copies(stream: Any) -> None:
    """Moves bytes in and out by every way, and checks that they arrived."""
    count = 3 * MIB + 5
    source, target = (ctypes.create_string_buffer(count) for _ in range(2))
    source.raw = bytes(range(251)) * (count // 251) + b"\1" * (count % 251)
    one, other = ok(driver.cuMemAlloc(count)), ok(driver.cuMemAlloc(count))
    ok(driver.cuMemcpyHtoD(one, source, count))
    ok(driver.cuMemcpyDtoDAsync(other, one, count, stream))
    ok(driver.cuMemsetD8Async(other, 0xEE, 7, stream))
    ok(driver.cuMemcpyDtoHAsync(target, other, count, stream))
    ok(driver.cuStreamSynchronize(stream))
    assert target.raw == b"\xee" * 7 + source.raw[7:]
    ok(driver.cuMemsetD32(one, 0x01020304, 4))
    ok(driver.cuMemcpyDtoH(target, one, 16))
    assert target.raw[:16] == b"\4\3\2\1" * 4
    for address in (one, other):
        ok(driver.cuMemFree(address))
    pinned = ok(driver.cuMemHostAlloc(4096, 0))
    managed = ok(driver.cuMemAllocManaged(4096, 1))
    ctypes.memset(int(managed), 7, 4096)
    ok(driver.cuMemcpy(int(pinned), int(managed), 4096))
    assert ctypes.string_at(int(pinned), 4096) == b"\7" * 4096
    ok(driver.cuMemFree(managed))
    ok(driver.cuMemFreeHost(pinned))


def pools(device: Any, stream: Any) -> None:
    pool = ok(driver.cuDeviceGetDefaultMemPool(device))
    kept = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    used = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT
    ok(driver.cuMemPoolSetAttribute(pool, kept, driver.cuuint64_t(64 * MIB)))
    address = ok(driver.cuMemAllocAsync(32 * MIB, stream))
    assert int(ok(driver.cuMemPoolGetAttribute(pool, used))) >= 32 * MIB
    ok(driver.cuMemFreeAsync(address, stream))
    ok(driver.cuStreamSynchronize(stream))
    assert int(ok(driver.cuMemPoolGetAttribute(pool, used))) == 0
    ok(driver.cuMemPoolTrimTo(pool, 0))


class Kernel:
    """`spin_ns` with its argument, held for as long as launches may read it."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.arguments = ((KERNEL_NS,), (ctypes.c_uint64,))

    def launch(self, stream: Any) -> None:
        ok(driver.cuLaunchKernel(self.function, 1, 1, 1, 32, 1, 1, 0, stream, self.arguments, 0))


def elapsed_ms(stream: Any, work: Callable[[], object]) -> float:
    begin, end = ok(driver.cuEventCreate(0)), ok(driver.cuEventCreate(0))
    ok(driver.cuEventRecord(begin, stream))
    work()
    ok(driver.cuEventRecord(end, stream))
    ok(driver.cuEventSynchronize(end))
    assert driver.cuEventQuery(end)[0] == driver.CUresult.CUDA_SUCCESS
    took_ms = ok(driver.cuEventElapsedTime(begin, end))
    for event in (begin, end):
        ok(driver.cuEventDestroy(event))
    return float(took_ms)


def modules(stream: Any) -> tuple[Any, Kernel, dict[str, float]]:
    module = ok(driver.cuModuleLoadData(PTX))
    _, table_bytes = ok(driver.cuModuleGetGlobal(module, b"table"))
    assert table_bytes == 256
    function = ok(driver.cuModuleGetFunction(module, b"spin_ns"))
    most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
    assert ok(driver.cuFuncGetAttribute(most, function)) >= 32
    missing, _ = driver.cuModuleGetFunction(module, b"missing")
    assert missing == driver.CUresult.CUDA_ERROR_NOT_FOUND
    blocks = ok(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, 256, 0))
    assert blocks >= 1
    kernel = Kernel(function)
    launched_ms = elapsed_ms(stream, lambda: kernel.launch(stream))
    config = driver.CUlaunchConfig()
    config.gridDimX = config.gridDimY = config.gridDimZ = 1
    config.blockDimX, config.blockDimY, config.blockDimZ = 32, 1, 1
    config.hStream = stream
    extended_ms = elapsed_ms(
        stream, lambda: ok(driver.cuLaunchKernelEx(config, function, kernel.arguments, 0))
    )
    return module, kernel, {"launched_ms": launched_ms, "extended_ms": extended_ms}


def libraries(stream: Any) -> float:
    library = ok(driver.cuLibraryLoadData(PTX, [], [], 0, [], [], 0))
    handle = ok(driver.cuLibraryGetKernel(library, b"spin_ns"))
    kernel = Kernel(ok(driver.cuKernelGetFunction(handle)))
    took_ms = elapsed_ms(stream, lambda: kernel.launch(stream))
    ok(driver.cuLibraryUnload(library))
    return took_ms


def graphs(kernel: Kernel, stream: Any) -> dict[str, float]:
    """Captures three kernels over two streams, and runs them twice."""
    side, fork, join = (
        ok(driver.cuStreamCreate(1)),
        ok(driver.cuEventCreate(2)),
        ok(driver.cuEventCreate(2)),
    )
    ok(
        driver.cuStreamBeginCapture(
            stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        )
    )
    kernel.launch(stream)
    ok(driver.cuEventRecord(fork, stream))
    ok(driver.cuStreamWaitEvent(side, fork, 0))
    kernel.launch(side)
    ok(driver.cuEventRecord(join, side))
    ok(driver.cuStreamWaitEvent(stream, join, 0))
    kernel.launch(stream)
    graph = ok(driver.cuStreamEndCapture(stream))
    _, nodes = ok(driver.cuGraphGetNodes(graph))
    executable = ok(driver.cuGraphInstantiate(graph, 0))

    def run_twice() -> None:
        for _ in range(2):
            ok(driver.cuGraphLaunch(executable, stream))

    took_ms = elapsed_ms(stream, run_twice)
    ok(driver.cuGraphExecDestroy(executable))
    ok(driver.cuGraphDestroy(graph))
    ok(driver.cuStreamDestroy(side))
    return {"graph_nodes": nodes, "graph_ms": took_ms}


def fill() -> dict[str, int]:
    """Takes memory until there is none, and gives it back."""
    free_bytes, _ = ok(driver.cuMemGetInfo())
    pieces, piece_bytes = [], 256 * MIB
    while True:
        error, address = driver.cuMemAlloc(piece_bytes)
        if error != driver.CUresult.CUDA_SUCCESS:
            break
        pieces.append(address)
    assert error == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    for address in pieces:
        ok(driver.cuMemFree(address))
    return {"free_bytes": free_bytes, "granted_bytes": len(pieces) * piece_bytes}


def main() -> None:
    device, seen = devices()
    primary = contexts(device)
    lowest, highest = ok(driver.cuCtxGetStreamPriorityRange())
    assert highest <= lowest
    stream = ok(driver.cuStreamCreateWithPriority(1, highest))
    copies(stream)
    pools(device, stream)
    module, kernel, times = modules(stream)
    seen |= times | graphs(kernel, stream) | fill()
    seen["library_ms"] = libraries(stream)
    ok(driver.cuModuleUnload(module))
    ok(driver.cuStreamDestroy(stream))
    assert int(ok(driver.cuCtxGetCurrent())) == int(primary)
    ok(driver.cuDevicePrimaryCtxRelease(device))
    print(json.dumps(seen))


main()
