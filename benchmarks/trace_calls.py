"""What a program's calls ask of the driver, and what those cost the host on an H100.

A program of the runtime API calls `cuda…`; what it does in the driver is what a player repeats.
Pure tables: trace.py reads rows by them, trace_plan.py adds up costs.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import libvgpu

_LAUNCH = ("stream", "kind", "blocks", "threads", "gpu_ns")
_NOTHING: tuple[str, ...] = ()
#: call of the program -> the driver's call behind it (None: it makes none), and its row's keys.
#: A copy's driver call is that of its direction.
CALLS: Mapping[str, tuple[str | None, tuple[str, ...]]] = {
    "cudaLaunchKernel": ("cuLaunchKernel", _LAUNCH),
    "cudaLaunchKernelExC": ("cuLaunchKernelEx", _LAUNCH),
    "cudaLaunchCooperativeKernel": ("cuLaunchCooperativeKernel", _LAUNCH),
    "cuLaunchKernel": ("cuLaunchKernel", _LAUNCH),
    "cuLaunchKernelEx": ("cuLaunchKernelEx", _LAUNCH),
    "cudaGraphLaunch": ("cuGraphLaunch", ("stream",)),
    "cudaMemsetAsync": ("cuMemsetD8Async", ("stream", "bytes", "gpu_ns")),
    "cudaMemcpyAsync": ("", ("stream", "bytes", "gpu_ns", "copy")),
    "cudaStreamSynchronize": ("cuStreamSynchronize", ("stream",)),
    "cudaStreamIsCapturing": ("cuStreamIsCapturing", ("stream",)),
    "cudaStreamWaitEvent": ("cuStreamWaitEvent", ("stream", "event")),
    "cudaDeviceSynchronize": ("cuCtxSynchronize", _NOTHING),
    "cudaEventRecord": ("cuEventRecord", ("stream", "event")),
    "cudaEventQuery": ("cuEventQuery", ("event",)),
    "cudaEventSynchronize": ("cuEventSynchronize", ("event",)),
    "cudaFuncGetAttributes": ("cuFuncGetAttribute", _NOTHING),
    "cudaFuncSetAttribute": ("cuFuncSetAttribute", _NOTHING),
    "cudaDeviceGetAttribute": ("cuDeviceGetAttribute", _NOTHING),
    "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags": (
        "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
        _NOTHING,
    ),
    "cudaGetErrorString": (None, _NOTHING),
    "cudaGetFuncBySymbol": (None, _NOTHING),
    "cudaGetLastError": (None, _NOTHING),
    "cudaPeekAtLastError": (None, _NOTHING),
}
#: What a copy goes between -> the driver's call. From pageable memory it waits until it is done.
COPIES: Mapping[str, str] = {
    "pageable to device": "cuMemcpyHtoDAsync",
    "pinned to device": "cuMemcpyHtoDAsync",
    "device to pinned": "cuMemcpyDtoHAsync",
    "device to pageable": "cuMemcpyDtoHAsync",
    "device to device": "cuMemcpyDtoDAsync",
}
#: Driver calls that a calibration keeps under another name.
_KEPT_AS = {"cuMemsetD8Async": "cuMemsetAsync", "cuLaunchCooperativeKernel": "cuLaunchKernel"}
#: Those under 100 ns, which a calibration leaves out; ns of the host, measured on an H100
#: (results/driver-h100-2026-11-23.json), but for cuFuncSetAttribute, taken to be as its sister.
_SMALL_NS = {
    "cuStreamIsCapturing": 23,
    "cuFuncGetAttribute": 23,
    "cuFuncSetAttribute": 23,
    "cuDeviceGetAttribute": 21,
    "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags": 108,
}
_CALIBRATION = Path(libvgpu.__file__).resolve().parent / "sim" / "calibrations" / "h100.yaml"
# Each figure of a calibration has a line of its own. Next to a real GPU there may be nothing that
# reads YAML; a test holds this to what `libvgpu.sim.calibration` reads.
_FIGURES_NS, _COLD_NS = (
    {name: int(value) for name, value in re.findall(r"^ *(\w+): \[(\d+), ", part, re.M)}
    for part in re.split(r"^cold_call_ns:", _CALIBRATION.read_text(), flags=re.M)
)
#: From the beginning of a launch to that of its work on an idle GPU.
REACH_NS = _FIGURES_NS["latency_ns"]


def call_ns(driver_call: str, since_ns: float = 0) -> int:
    """Returns what a driver call costs the host on an H100 in ns, without a profiler.

    Args:
        driver_call: its name.
        since_ns: since its thread was through with its last call.
    """
    if driver_call in _SMALL_NS:
        return _SMALL_NS[driver_call]
    name = _KEPT_AS.get(driver_call, driver_call)
    is_cold = since_ns > _FIGURES_NS["cold_after_ns"]
    return _FIGURES_NS.get(name, 0) + (_COLD_NS.get(name, 0) if is_cold else 0)
