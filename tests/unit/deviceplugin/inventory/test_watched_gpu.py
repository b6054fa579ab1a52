"""Whom an event of NVML means: a GPU, all of its MIG devices, or the one that it names."""

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from deviceplugin.inventory.watched_gpu import ANY_INSTANCE, WatchedGpu, find, meant_by

FIRST, SECOND = ctypes.c_void_p(0x1000), ctypes.c_void_p(0x2000)
WATCHED = (
    WatchedGpu("MIG-a", None, FIRST, 1, 0),
    WatchedGpu("MIG-b", None, FIRST, 2, 0),
    WatchedGpu("MIG-c", None, FIRST, 2, 1),
    WatchedGpu("GPU-2", SECOND, SECOND),
)


def event(device: Any, gpu_instance: int, compute_instance: int) -> Any:
    return SimpleNamespace(
        device=device, gpuInstanceId=gpu_instance, computeInstanceId=compute_instance
    )


@pytest.mark.parametrize(
    ("gpu_instance", "compute_instance", "meant"),
    [
        (ANY_INSTANCE, ANY_INSTANCE, ["MIG-a", "MIG-b", "MIG-c"]),
        (2, ANY_INSTANCE, ["MIG-b", "MIG-c"]),
        (2, 1, ["MIG-c"]),
        (1, 0, ["MIG-a"]),
        (5, 0, []),
    ],
)
def test_an_event_means_the_mig_devices_that_it_names(
    gpu_instance: int, compute_instance: int, meant: list[str]
) -> None:
    assert meant_by(event(FIRST, gpu_instance, compute_instance), WATCHED) == meant


def test_an_event_means_a_whole_gpu_whatever_instance_it_names() -> None:
    assert meant_by(event(SECOND, 3, 0), WATCHED) == ["GPU-2"]
    assert meant_by(event(SECOND, ANY_INSTANCE, ANY_INSTANCE), WATCHED) == ["GPU-2"]


def test_an_event_of_another_gpu_means_none() -> None:
    assert meant_by(event(ctypes.c_void_p(0x3000), 1, 0), WATCHED) == []


class NvmlWithoutInstances:
    """Knows no numbers of instances."""

    class NVMLError(Exception):
        value = 3

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        return uuid

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: str) -> Any:  # noqa: N802
        return FIRST

    def nvmlDeviceGetGpuInstanceId(self, handle: str) -> int:  # noqa: N802
        raise self.NVMLError


def test_a_mig_device_without_numbers_is_meant_by_every_event_of_its_gpu() -> None:
    found = find(NvmlWithoutInstances(), "MIG-a")

    assert meant_by(event(FIRST, 4, 2), [found]) == ["MIG-a"]
