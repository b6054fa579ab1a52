"""Asks a driver for its `Sizes`: takes memory of every kind and looks how NVML's figure grows.

``python -m support.exercise.driver_probe UUID`` prints them as JSON. It runs without the shim, and
changes no setting of the GPU: what it raises are limits of its own context.
"""

import ctypes
import math
import sys
from ctypes import addressof, byref, c_char, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

import pynvml

from support.exercise.driver_sizes import MIB, NOT_THERE, RAISED_BYTES, Sizes
from support.exercise.handles import Properties, TeamProperties, foreign_memory
from support.exercise.pool import ON_DEVICE, ON_HOST, PINNED, Location

COMPUTE, ALL = 0, 3  # NVML_PROCESS_MODE_…
SMS, RESOURCE_BYTES = 1, 256  # CU_DEV_RESOURCE_TYPE_SM; more than CUdevResource has
DETAILS, DETAIL_BYTES = 8, 40  # room for so many nvmlProcessDetail_v1_t
ODD_PIECES = (3 * MIB + 1, 5 * MIB + 1, 7 * MIB + 1)
MINIMUM = 0  # CU_MEM_ALLOC_GRANULARITY_MINIMUM
DETAIL_LIST_VERSION = 24 | 1 << 24


class DetailList(ctypes.Structure):
    """nvmlProcessDetailList_t."""

    _fields_ = (("version", c_uint), ("mode", c_uint), ("count", c_uint), ("entries", c_void_p))


class Probe:
    """The driver, NVML and a GPU, as a program without a slice has them."""

    def __init__(self, uuid: str) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._nvml = ctypes.CDLL("libnvidia-ml.so.1")
        pynvml.nvmlInit()
        self._gpu = pynvml.nvmlDeviceGetHandleByUUID(uuid)

    def sizes(self, uuid: str) -> Sizes:
        """Returns all answers; the context that this takes stays."""
        context, granule = c_void_p(), c_size_t()
        self._must("cuInit", 0)
        context_bytes = self._growth("cuDevicePrimaryCtxRetain", byref(context), 0)
        self._must("cuCtxSetCurrent", context)
        wanted = Properties(type=PINNED, location=Location(ON_DEVICE, 0))
        self._must("cuMemGetAllocationGranularity", byref(granule), byref(wanted), MINIMUM)
        return Sizes(
            uuid=uuid,
            gpus=pynvml.nvmlDeviceGetCount(),
            context_bytes=context_bytes,
            green_context_bytes=self._green_context_bytes(),
            block_bytes=self._block_bytes(),
            granule_bytes=granule.value,
            pool_bytes=self._pool_bytes(),
            limit_bytes={limit: self._limit_bytes(limit) for limit in RAISED_BYTES},
            outdated_code=self._code("cuMemGetInfo", byref(c_uint()), byref(c_uint())),
            codes=self._codes(granule.value),
        )

    def _green_context_bytes(self) -> int:
        resource, described, green = (c_char * RESOURCE_BYTES)(), c_void_p(), c_void_p()
        if self._code("cuDeviceGetDevResource", 0, byref(resource), SMS) != 0:
            return 0
        self._must("cuDevResourceGenerateDesc", byref(described), byref(resource), 1)
        grown = self._growth("cuGreenCtxCreate", byref(green), described, 0, 1)
        self._must("cuGreenCtxDestroy", green)
        return grown

    def _block_bytes(self) -> int:
        address, grown = c_uint64(), []
        for bytes in ODD_PIECES:
            grown.append(self._growth("cuMemAlloc_v2", byref(address), bytes))
            self._must("cuMemFree_v2", address)
        return math.gcd(*grown)

    def _pool_bytes(self) -> int:
        address = c_uint64()
        grown = self._growth("cuMemAllocAsync", byref(address), 1, None)
        self._must("cuMemFreeAsync", address, None)
        self._must("cuCtxSynchronize")
        return grown

    def _limit_bytes(self, limit: int) -> int:
        default = c_size_t()
        self._must("cuCtxGetLimit", byref(default), limit)
        grown = self._growth("cuCtxSetLimit", limit, default.value + RAISED_BYTES[limit])
        self._must("cuCtxSetLimit", limit, default.value)
        return grown

    def _codes(self, granule: int) -> dict[str, int]:
        """Asked last: what these calls take returns with the end of the process."""
        team, memory, pool, context = c_uint64(), c_void_p(), c_void_p(), c_void_p()
        team_of_one = TeamProperties(devices=1, bytes=2 * granule)
        entries = (c_char * (DETAILS * DETAIL_BYTES))()
        details, details_of_all = (
            DetailList(DETAIL_LIST_VERSION, mode, DETAILS, addressof(entries))
            for mode in (COMPUTE, ALL)
        )
        list_details = "nvmlDeviceGetRunningProcessDetailList"
        asked: dict[str, tuple[Any, ...]] = {
            "cuMulticastCreate": (byref(team), byref(team_of_one)),
            "cuImportExternalMemory": (byref(memory), byref(foreign_memory(MIB))),
            "cuMemGetDefaultMemPool": (byref(pool), byref(Location(ON_HOST, 0)), PINNED),
            list_details: (self._gpu, byref(details)),
            f"{list_details} of all": (self._gpu, byref(details_of_all)),
            "cuCtxCreate": (byref(context), 0, 0),
        }
        codes = {name: self._code(name.split()[0], *asked[name]) for name in asked}
        address = c_uint64()  # in that context, which is current now
        codes["cuMemAlloc_v2 after cuCtxCreate"] = self._code("cuMemAlloc_v2", byref(address), MIB)
        return codes

    def _used(self) -> int:
        return int(pynvml.nvmlDeviceGetMemoryInfo(self._gpu).used)

    def _growth(self, symbol: str, *arguments: Any) -> int:
        before = self._used()
        self._must(symbol, *arguments)
        return self._used() - before

    def _must(self, symbol: str, *arguments: Any) -> None:
        code = self._code(symbol, *arguments)
        if code != 0:
            raise SystemExit(f"{symbol} gave {code}")

    def _code(self, symbol: str, *arguments: Any) -> int:
        library = self._nvml if symbol.startswith("nvml") else self._cuda
        function = getattr(library, symbol, None)
        if function is None:
            return NOT_THERE
        function.restype = c_int
        return int(function(*(c_uint64(a) if type(a) is int else a for a in arguments)))


if __name__ == "__main__":
    print(Probe(sys.argv[1]).sizes(sys.argv[1]).to_json())
