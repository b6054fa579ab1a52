"""Exercises of NVML's lists of processes: the container's own, on the GPU that they use."""

import os
from ctypes import byref, c_uint
from typing import Any

from support.exercise.driver import Driver, exercise
from support.exercise.nvml import (
    NvmlProcess,
    ProcessDetail,
    ProcessDetails,
    ProcessV2,
    handle_of,
    needs_another_gpu,
    some_memory,
    versioned,
)

GPUS = 2
SIMULATED = {"VGPU_SIM_ACCOUNTING": "1"}
ROOM = 4
NOT_SUPPORTED, INSUFFICIENT_SIZE = 3, 7
ENABLED = 1
COMPUTE, GRAPHICS, MPS, ALL = range(4)
COMPUTE_LISTS, GRAPHICS_LISTS, MPS_LISTS = (
    tuple(f"nvmlDeviceGet{kind}RunningProcesses{version}" for version in ("", "_v2", "_v3"))
    for kind in ("Compute", "Graphics", "MPSCompute")
)
DETAIL_LIST = "nvmlDeviceGetRunningProcessDetailList"


def _listed(driver: Driver, symbol: str, index: int) -> list[tuple[int, int]]:
    infos = ((ProcessV2 if symbol.endswith(("_v2", "_v3")) else NvmlProcess) * ROOM)()
    with handle_of(driver, index) as handle:
        count = c_uint(ROOM)
        driver.check(symbol, handle, byref(count), infos)
        if count.value:
            none = c_uint(0)
            assert driver.call(symbol, handle, byref(none), None) == INSUFFICIENT_SIZE
            assert none.value == count.value
    return [(info.pid, info.used) for info in infos[: count.value]]


def _compute_list(driver: Driver, symbol: str) -> None:
    with some_memory(driver):
        assert _listed(driver, symbol, 0) == [(os.getpid(), driver.used())]
        assert driver.elsewhere(held_elsewhere, symbol) == [[os.getpid(), driver.used()]]


def held_elsewhere(driver: Driver, symbol: str) -> Any:
    """What a process sees that has never used a GPU."""
    return _listed(driver, symbol, 0)


def _empty_list(driver: Driver, symbol: str) -> None:
    with some_memory(driver):
        assert _listed(driver, symbol, 0) == []


@exercise(COMPUTE_LISTS[0])
def compute_list(driver: Driver) -> None:
    _compute_list(driver, COMPUTE_LISTS[0])


@exercise(COMPUTE_LISTS[1])
def compute_list_v2(driver: Driver) -> None:
    _compute_list(driver, COMPUTE_LISTS[1])


@exercise(COMPUTE_LISTS[2])
def compute_list_v3(driver: Driver) -> None:
    _compute_list(driver, COMPUTE_LISTS[2])


@exercise(*COMPUTE_LISTS)
def compute_lists_of_a_gpu_that_is_not_ours(driver: Driver) -> None:
    needs_another_gpu(driver)
    for symbol in COMPUTE_LISTS:
        assert _listed(driver, symbol, 1) == []


@exercise(*GRAPHICS_LISTS[:2], *MPS_LISTS[:2])
def empty_lists(driver: Driver) -> None:
    for symbol in (*GRAPHICS_LISTS[:2], *MPS_LISTS[:2]):
        _empty_list(driver, symbol)


@exercise(GRAPHICS_LISTS[2], MPS_LISTS[2])
def empty_lists_v3(driver: Driver) -> None:
    for symbol in (GRAPHICS_LISTS[2], MPS_LISTS[2]):
        _empty_list(driver, symbol)


def _detailed(driver: Driver, counts: dict[int, int]) -> None:
    entries = (ProcessDetail * ROOM)()
    with some_memory(driver), handle_of(driver, 0) as handle:
        for mode, count in counts.items():
            details = ProcessDetails(versioned(ProcessDetails), mode, ROOM, entries)
            driver.check(DETAIL_LIST, handle, byref(details))
            assert details.count == count, mode
        assert (entries[0].pid, entries[0].used) == (os.getpid(), driver.used())


@exercise(DETAIL_LIST)
def detailed_list(driver: Driver) -> None:
    driver.needs_call(DETAIL_LIST, "NVML tells no details of the processes of this GPU")
    _detailed(driver, {COMPUTE: 1, GRAPHICS: 0, MPS: 0})


@exercise(DETAIL_LIST)
def detailed_list_of_all(driver: Driver) -> None:
    driver.needs_call(f"{DETAIL_LIST} of all", "this NVML knows no list of all processes")
    _detailed(driver, {ALL: 1})


def _not_accounted(driver: Driver, symbol: str, *arguments: Any) -> None:
    """The GPU remembers processes, all tenants' alike."""
    mode = c_uint()
    with some_memory(driver), handle_of(driver, 0) as handle:
        driver.check("nvmlDeviceGetAccountingMode", handle, byref(mode))
        driver.needs(
            mode.value == ENABLED,
            "accounting is off on this GPU, and to turn it on is to change a setting of it",
        )
        assert driver.call(symbol, handle, *arguments) == NOT_SUPPORTED


@exercise("nvmlDeviceGetAccountingPids", "nvmlDeviceGetAccountingStats")
def no_accounting(driver: Driver) -> None:
    pids, count = (c_uint * ROOM)(), c_uint(ROOM)
    _not_accounted(driver, "nvmlDeviceGetAccountingPids", byref(count), pids)
    assert pids[0] == 0
    _not_accounted(driver, "nvmlDeviceGetAccountingStats", os.getpid(), (c_uint * 64)())


@exercise("nvmlDeviceGetAccountingStats_v2")
def no_accounting_v2(driver: Driver) -> None:
    _not_accounted(driver, "nvmlDeviceGetAccountingStats_v2", (c_uint * 64)(os.getpid()))
