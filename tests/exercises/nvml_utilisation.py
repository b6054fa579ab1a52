"""Exercises of NVML's utilisation: GPU time of the container's own launches."""

import os
import time
from ctypes import byref, c_uint
from typing import Any

from support.exercise.driver import Driver, exercise
from support.exercise.kernel import Spin
from support.exercise.nvml import (
    DeviceSample,
    NvmlSamples,
    PerformanceStates,
    Rates,
    Sample,
    SampleV2,
    handle_of,
    needs_another_gpu,
    some_memory,
    versioned,
)

SLICE = {"core_percent": 50}
MEASURES = True
GPUS = 2
KERNEL_NS = 1_000_000
WORK_SECONDS = 0.35
LEAST_PERCENT, MOST_PERCENT = 20, 80  # of a cap of 50, on a busy host
ROOM = 4
GPU_SAMPLES = 1
NOT_FOUND = 6


def _work(driver: Driver) -> None:
    """Launches for a while, so that there is something to see."""
    spin, end = Spin(driver, KERNEL_NS), time.monotonic() + WORK_SECONDS
    while time.monotonic() < end:
        spin.launch()
        spin.wait()
    spin.close()


def _is_own(percent: int) -> bool:
    return LEAST_PERCENT <= percent <= MOST_PERCENT


@exercise(
    "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetSamples", "nvmlDeviceGetProcessUtilization"
)
def own_utilisation(driver: Driver) -> None:
    _work(driver)
    rates, kind, count = Rates(), c_uint(), c_uint(ROOM)
    newest = (DeviceSample * ROOM)()
    with handle_of(driver, 0) as handle:
        driver.check("nvmlDeviceGetUtilizationRates", handle, byref(rates))
        assert _is_own(rates.gpu), rates.gpu
        driver.check(
            "nvmlDeviceGetSamples", handle, GPU_SAMPLES, 0, byref(kind), byref(count), newest
        )
        assert count.value == 1
        assert _is_own(newest[0].value), newest[0].value
        by_process = (Sample * ROOM)()
        count = c_uint(ROOM)
        driver.check("nvmlDeviceGetProcessUtilization", handle, by_process, byref(count), 0)
        assert [(s.pid, _is_own(s.sm)) for s in by_process[: count.value]] == [(os.getpid(), True)]


@exercise("nvmlDeviceGetDynamicPstatesInfo")
def own_performance_states(driver: Driver) -> None:
    _work(driver)
    states = PerformanceStates()
    with handle_of(driver, 0) as handle:
        driver.check("nvmlDeviceGetDynamicPstatesInfo", handle, byref(states))
    assert _is_own(states.domains[0].percent), states.domains[0].percent


@exercise("nvmlDeviceGetProcessesUtilizationInfo")
def own_processes(driver: Driver) -> None:
    _work(driver)
    entries = (SampleV2 * ROOM)()
    samples = NvmlSamples(versioned(NvmlSamples), ROOM, 0, entries)
    with handle_of(driver, 0) as handle:
        driver.check("nvmlDeviceGetProcessesUtilizationInfo", handle, byref(samples))
    assert [(s.pid, _is_own(s.sm)) for s in entries[: samples.count]] == [(os.getpid(), True)]


@exercise("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetProcessUtilization")
def nothing_of_a_gpu_that_is_not_ours(driver: Driver) -> None:
    needs_another_gpu(driver)
    rates, count = Rates(7, 7), c_uint(ROOM)
    with some_memory(driver), handle_of(driver, 1) as handle:
        driver.check("nvmlDeviceGetUtilizationRates", handle, byref(rates))
        code: Any = driver.call(
            "nvmlDeviceGetProcessUtilization", handle, (Sample * ROOM)(), byref(count), 0
        )
    assert (rates.gpu, rates.memory, code) == (0, 0, NOT_FOUND)


@exercise("nvmlDeviceGetDynamicPstatesInfo")
def no_states_of_a_gpu_that_is_not_ours(driver: Driver) -> None:
    needs_another_gpu(driver)
    states = PerformanceStates()
    with some_memory(driver), handle_of(driver, 1) as handle:
        driver.check("nvmlDeviceGetDynamicPstatesInfo", handle, byref(states))
    assert [domain.percent for domain in states.domains[:2]] == [0, 0]
