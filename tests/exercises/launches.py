"""Exercises of what takes GPU time: launches wait for their share, and are counted."""

from ctypes import byref, c_void_p
from typing import Any

from support.exercise.driver import Driver, exercise
from support.exercise.kernel import Spin

SLICE = {"core_percent": 20}
MEASURES = True
KERNEL_NS = 1_000_000
LAUNCHES = 4
DEFAULT_STREAM = None


def _held(driver: Driver, symbol: str, *arguments: Any) -> None:
    """Launches of 1 ms at a share of 20 % take 5 ms each, once the first credit is used up.

    A wait gives back the launches that were counted before they are made.
    """
    driver.check("cuCtxSynchronize")
    before = driver.own()
    for _ in range(LAUNCHES):
        driver.check(symbol, *arguments)
    driver.check("cuCtxSynchronize")
    after = driver.own()
    assert after.launches - before.launches == LAUNCHES
    assert after.held_ns - before.held_ns > LAUNCHES * KERNEL_NS


def _kernels(driver: Driver, suffix: str) -> None:
    spin = Spin(driver, KERNEL_NS)
    stream = DEFAULT_STREAM if suffix else spin.stream
    _held(
        driver, f"cuLaunchKernel{suffix}", spin.function, *spin.shape, stream, spin.parameters, None
    )
    _held(
        driver,
        f"cuLaunchCooperativeKernel{suffix}",
        spin.function,
        *spin.shape,
        stream,
        spin.parameters,
    )
    spin.close()


def _by_attributes(driver: Driver, suffix: str) -> None:
    spin = Spin(driver, KERNEL_NS)
    config = spin.config(DEFAULT_STREAM if suffix else spin.stream)
    _held(driver, f"cuLaunchKernelEx{suffix}", byref(config), spin.function, spin.parameters, None)
    spin.close()


def _graph(driver: Driver, suffix: str) -> None:
    spin, graph, executable = Spin(driver, KERNEL_NS), c_void_p(), c_void_p()
    driver.check("cuStreamBeginCapture_v2", spin.stream, 0)
    spin.launch()
    driver.check("cuStreamEndCapture", spin.stream, byref(graph))
    driver.check("cuGraphInstantiateWithFlags", byref(executable), graph, 0)
    _held(driver, f"cuGraphLaunch{suffix}", executable, DEFAULT_STREAM if suffix else spin.stream)
    driver.check("cuGraphExecDestroy", executable)
    driver.check("cuGraphDestroy", graph)
    spin.close()


@exercise("cuLaunchKernel", "cuLaunchCooperativeKernel")
def kernels(driver: Driver) -> None:
    _kernels(driver, "")


@exercise("cuLaunchKernel_ptsz", "cuLaunchCooperativeKernel_ptsz")
def kernels_per_thread(driver: Driver) -> None:
    _kernels(driver, "_ptsz")


@exercise("cuLaunchKernelEx")
def kernels_by_attributes(driver: Driver) -> None:
    _by_attributes(driver, "")


@exercise("cuLaunchKernelEx_ptsz")
def kernels_by_attributes_per_thread(driver: Driver) -> None:
    _by_attributes(driver, "_ptsz")


@exercise("cuGraphLaunch")
def graphs(driver: Driver) -> None:
    _graph(driver, "")


@exercise("cuGraphLaunch_ptsz")
def graphs_per_thread(driver: Driver) -> None:
    _graph(driver, "_ptsz")
