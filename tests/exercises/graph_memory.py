"""Exercises of memory nodes of graphs: charged from what takes their memory until it is trimmed."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_int, c_uint64, c_void_p
from typing import Any

from support.exercise.driver import MIB, Driver, exercise
from support.exercise.pool import AllocationNode, properties

PIECE = 8 * MIB
UPLOAD = 2
NO_LOG = (None, None, 0)
MOST_HANDLES = 64


class InstantiateParams(ctypes.Structure):
    """CUDA_GRAPH_INSTANTIATE_PARAMS."""

    _fields_ = (
        ("flags", c_uint64),
        ("stream", c_void_p),
        ("error_node", c_void_p),
        ("result", c_int),
    )


@contextmanager
def _graph(driver: Driver) -> Iterator[c_void_p]:
    """A graph that allocates and frees; what the driver keeps for it is returned behind."""
    graph, node, free = c_void_p(), c_void_p(), c_void_p()
    wanted = AllocationNode(properties(), None, 0, driver.sizes.of_pool(PIECE))
    driver.check("cuGraphCreate", byref(graph), 0)
    driver.check("cuGraphAddMemAllocNode", byref(node), graph, None, 0, byref(wanted))
    address = c_uint64(wanted.address)
    driver.check("cuGraphAddMemFreeNode", byref(free), graph, byref(node), 1, address)
    with driver.charged(0):
        yield graph
        driver.check("cuStreamSynchronize", None)
        driver.check("cuDeviceGraphMemTrim", 0)
    driver.check("cuGraphDestroy", graph)


def _taken_later(driver: Driver, take: str, instantiate: str, *arguments: Any) -> None:
    """Making it executable takes nothing; ``take`` does, and is refused where there is no room."""
    executable = c_void_p()
    with _graph(driver) as graph:
        with driver.charged(0):
            driver.check(instantiate, byref(executable), graph, *arguments)
        with driver.full():
            driver.refuse(take, executable, None)
        with driver.charged(driver.sizes.of_pool(PIECE), "async", given=True):
            driver.check(take, executable, None)
        driver.check("cuGraphExecDestroy", executable)


def _taken_at_once(driver: Driver, instantiate: str, *arguments: Any) -> None:
    executable = c_void_p()
    with _graph(driver) as graph:
        with driver.full():
            driver.refuse(instantiate, byref(executable), graph, *arguments)
        with driver.charged(driver.sizes.of_pool(PIECE), "async", given=True):
            driver.check(instantiate, byref(executable), graph, *arguments)
        driver.check("cuGraphExecDestroy", executable)


@exercise(
    "cuGraphInstantiate",
    "cuGraphInstantiate_v2",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphLaunch_ptsz",
    "cuDeviceGraphMemTrim",
)
def launched(driver: Driver) -> None:
    _taken_later(driver, "cuGraphLaunch", "cuGraphInstantiate", *NO_LOG)
    _taken_later(driver, "cuGraphLaunch_ptsz", "cuGraphInstantiate_v2", *NO_LOG)
    _taken_later(driver, "cuGraphLaunch", "cuGraphInstantiateWithFlags", 0)


@exercise("cuGraphUpload", "cuGraphUpload_ptsz")
def uploaded(driver: Driver) -> None:
    _taken_later(driver, "cuGraphUpload", "cuGraphInstantiateWithFlags", 0)
    _taken_later(driver, "cuGraphUpload_ptsz", "cuGraphInstantiateWithFlags", 0)


@exercise("cuGraphInstantiateWithParams", "cuGraphInstantiateWithParams_ptsz")
def uploaded_by_instantiation(driver: Driver) -> None:
    for symbol in ("cuGraphInstantiateWithParams", "cuGraphInstantiateWithParams_ptsz"):
        _taken_at_once(driver, symbol, byref(InstantiateParams(UPLOAD)))


@exercise("cuGraphExecDestroy")
def the_next_graph_with_the_same_handle_needs_nothing(driver: Driver) -> None:
    first, second, empty = c_void_p(), c_void_p(), c_void_p()
    with _graph(driver) as graph:
        driver.check("cuGraphCreate", byref(empty), 0)
        handles = set()
        for _ in range(MOST_HANDLES):  # where a handle lies is the heap's business
            driver.check("cuGraphInstantiateWithFlags", byref(first), graph, 0)
            handles.add(first.value)
            driver.check("cuGraphExecDestroy", first)
            driver.check("cuGraphInstantiateWithFlags", byref(second), empty, 0)
            if second.value in handles:
                break
            driver.check("cuGraphExecDestroy", second)
        driver.needs(
            second.value in handles,
            f"no graph of {MOST_HANDLES} had the handle of one that was gone",
        )
        with driver.full():
            driver.check("cuGraphLaunch", second, None)
        driver.check("cuGraphExecDestroy", second)
        driver.check("cuGraphDestroy", empty)
