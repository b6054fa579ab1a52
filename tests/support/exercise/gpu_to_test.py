"""The real GPU that tests run on, once it is known to be fit for them."""

from collections.abc import Iterator
from contextlib import contextmanager

import pynvml

from benchmarks.gpu import RealGpu, real_gpu
from libvgpu.errors import VgpuError

_MODES = {
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: "exclusive thread",
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "prohibited",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive process",
}


@contextmanager
def gpu_to_test() -> Iterator[RealGpu]:
    """Gives the machine's first GPU as the loader and NVML find it; no setting of it is changed.

    A simulated machine that was put in their way (`vgpuctl sim run`) passes for a real one, but its
    ``title`` says what it is.

    Raises:
        VgpuError: there is no driver, no NVML or no GPU, somebody uses it, or it is set so that the
            exercises cannot run on it; the message is a sentence.
    """
    try:
        with real_gpu() as gpu:
            pynvml.nvmlInit()
            try:
                _check_settings(gpu)
            finally:
                pynvml.nvmlShutdown()
            yield gpu
    except pynvml.NVMLError as error:
        raise VgpuError(f"NVML tells too little of the GPU: {error}") from None


def _check_settings(gpu: RealGpu) -> None:
    handle = pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
    mode = pynvml.nvmlDeviceGetComputeMode(handle)
    if mode in _MODES:
        raise VgpuError(
            f"GPU 0 ({gpu.title}) is in compute mode {_MODES[mode]}, in which two processes cannot "
            "share it; the tests need the default mode and do not set it"
        )
    try:
        current, _ = pynvml.nvmlDeviceGetMigMode(handle)
    except pynvml.NVMLError_NotSupported:
        return
    if current == pynvml.NVML_DEVICE_MIG_ENABLE:
        raise VgpuError(
            f"GPU 0 ({gpu.title}) is in MIG mode; the tests need a whole GPU and do not change that"
        )
