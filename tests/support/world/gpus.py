"""The GPUs of a world: what lists them for the agent, and NVML's bindings as far as it asks them.

A GPU may be lost, a call of NVML for it may hang until it is well again, the driver may be gone,
and an error (XID) may be reported. No process is on any of them.
"""

import ctypes
from types import SimpleNamespace
from typing import Any

import pynvml

from deviceplugin.inventory.nvml_answers import GPU_IS_LOST
from deviceplugin.model.gpus import Gpu, GpuListing, SickGpu
from libvgpu.errors import InventoryError

from .one_failure import OneFailure
from .turns import Turns
from .waits import Condition, Lock

_DRIVER_NOT_LOADED = 9
_UNKNOWN = 999
_FIRST_HANDLE = 0x1000


class WorldGpus:
    """The GPUs, and their driver.

    Attributes:
        lost: GPUs that have fallen off the bus.
        hanging: GPUs for which no call returns.
        is_gone: there is no driver.
        failure: is asked before each call, where there is one.
    """

    failure: OneFailure | None = None

    def __init__(self, turns: Turns, gpus: tuple[Gpu, ...]) -> None:
        self.lost: list[Gpu] = []
        self.hanging: list[Gpu] = []
        self.is_gone = False
        self._turns, self._gpus = turns, gpus
        self._changed = Condition(turns, Lock(turns))
        self._errors: list[tuple[Gpu, int]] = []

    # ---- of the machine ------------------------------------------------------------------------

    def report(self, gpu: Gpu, xid: int) -> None:
        """An error of a GPU is reported to who waits for one."""
        self._errors.append((gpu, xid))
        self._tell()

    def recover(self) -> None:
        """All is well again."""
        self.lost, self.hanging, self.is_gone = [], [], False
        self._tell()

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()

    # ---- the inventory -------------------------------------------------------------------------

    def gpus(self) -> tuple[Gpu, ...]:
        return self.listing().gpus

    def listing(self) -> GpuListing:
        self._turns.point("nvml")
        if self.is_gone:
            raise InventoryError("the driver is not loaded")
        well = tuple(g for g in self._gpus if g not in self.lost and g not in self.hanging)
        return GpuListing(
            well,
            tuple(SickGpu(gpu.index, gpu.uuid, "it is lost") for gpu in self.lost)
            + tuple(SickGpu(g.index, g.uuid, "a call hangs", hangs=True) for g in self.hanging),
        )

    # ---- NVML's bindings -----------------------------------------------------------------------

    def bindings(self) -> Any:
        """Returns what stands in the place of the module `pynvml`."""
        errors = {n: getattr(pynvml, n) for n in dir(pynvml) if n.startswith("NVMLError")}
        return SimpleNamespace(
            **errors,
            nvmlEventTypeXidCriticalError=pynvml.nvmlEventTypeXidCriticalError,
            nvmlInit=self._open,
            nvmlShutdown=lambda: None,
            nvmlDeviceGetHandleByUUID=self._handle,
            nvmlDeviceGetMemoryInfo=self._memory,
            nvmlDeviceGetComputeRunningProcesses_v2=self._processes,
            nvmlEventSetCreate=lambda: len(self._errors),
            nvmlEventSetFree=lambda events: None,
            nvmlDeviceRegisterEvents=lambda handle, kinds, events: self._of(handle) and None,
            nvmlEventSetWait_v2=self._wait,
        )

    def _call(self, what: str, where: str) -> None:
        self._turns.point("nvml")
        if self.failure is not None:
            try:
                self.failure.meet(what, where)
            except OSError:
                raise pynvml.NVMLError(_UNKNOWN) from None

    def _open(self) -> None:
        self._call("nvmlInit", "NVML")
        if self.is_gone:
            raise pynvml.NVMLError(_DRIVER_NOT_LOADED)

    def _handle(self, uuid: str) -> Any:
        self._call("nvmlDeviceGetHandleByUUID", uuid)
        (gpu,) = (gpu for gpu in self._gpus if gpu.uuid == uuid)
        return ctypes.c_void_p(_FIRST_HANDLE + self._gpus.index(gpu))

    def _of(self, handle: Any) -> Gpu:
        """Returns the GPU, once it answers.

        Raises:
            NVMLError: it is lost.
        """
        gpu: Gpu = self._gpus[handle.value - _FIRST_HANDLE]
        self._call("nvmlDevice", gpu.uuid)
        while gpu in self.hanging:
            with self._changed:
                self._changed.wait()
        if gpu in self.lost:
            raise pynvml.NVMLError(GPU_IS_LOST)
        return gpu

    def _memory(self, handle: Any) -> Any:
        return SimpleNamespace(total=self._of(handle).memory_bytes, used=0)

    def _processes(self, handle: Any) -> list[Any]:
        self._of(handle)
        return []

    def _wait(self, events: int, timeout_ms: int) -> Any:
        self._call("nvmlEventSetWait", "NVML")
        until_s = self._turns.now_s + timeout_ms / 1000
        before = len(self._errors)
        while len(self._errors) == before:
            if self._turns.now_s >= until_s:
                raise pynvml.NVMLError_Timeout
            with self._changed:
                self._changed.wait(until_s - self._turns.now_s)
        gpu, xid = self._errors[before]
        return SimpleNamespace(
            device=ctypes.c_void_p(_FIRST_HANDLE + self._gpus.index(gpu)),
            eventType=pynvml.nvmlEventTypeXidCriticalError,
            eventData=xid,
            gpuInstanceId=0xFFFFFFFF,
            computeInstanceId=0xFFFFFFFF,
        )
