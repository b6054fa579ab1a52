"""Exercises of stream capture: what is captured is no launch, and nothing of ours is captured."""

from ctypes import byref, c_size_t, c_void_p
from typing import Any

from support.exercise.driver import Driver, exercise
from support.exercise.kernel import Spin

SLICE = {"core_percent": 50}
KERNEL_NS = 20_000
LAUNCHES = 3
NO_EDGES = (None, None, 0)
GLOBAL_MODE = 0


def _launches(driver: Driver, spin: Spin) -> int:
    """How many there were: a wait gives back those that are counted before they are made."""
    spin.wait()
    return driver.own().launches


def _captured(driver: Driver, begin: str, end: str, *arguments: Any, graph: c_void_p) -> None:
    spin, nodes = Spin(driver, KERNEL_NS), c_size_t()
    spin.launch()  # known already: a measurement may be open when the capture begins
    before = _launches(driver, spin)
    spin.launch()
    driver.check(begin, spin.stream, *arguments)
    for blocks in range(1, LAUNCHES + 1):  # kinds that nobody has measured
        spin.blocks = blocks
        spin.launch()
    driver.check(end, spin.stream, byref(graph))
    driver.check("cuGraphGetNodes", graph, None, byref(nodes))
    assert nodes.value == LAUNCHES
    assert _launches(driver, spin) == before + 1
    spin.launch()
    assert _launches(driver, spin) == before + 2  # they are counted again
    driver.check("cuGraphDestroy", graph)
    spin.close()


def _captures(driver: Driver, suffix: str) -> None:
    end = f"cuStreamEndCapture{suffix}"
    _captured(driver, f"cuStreamBeginCapture{suffix}", end, graph=c_void_p())
    _captured(driver, f"cuStreamBeginCapture_v2{suffix}", end, GLOBAL_MODE, graph=c_void_p())


def _captures_to_a_graph(driver: Driver, suffix: str) -> None:
    graph = c_void_p()
    driver.check("cuGraphCreate", byref(graph), 0)
    _captured(driver, f"cuStreamBeginCaptureToGraph{suffix}", f"cuStreamEndCapture{suffix}",
              graph, *NO_EDGES, GLOBAL_MODE, graph=graph)  # fmt: skip


@exercise("cuStreamBeginCapture", "cuStreamBeginCapture_v2", "cuStreamEndCapture")
def captures(driver: Driver) -> None:
    _captures(driver, "")


@exercise("cuStreamBeginCapture_ptsz", "cuStreamBeginCapture_v2_ptsz", "cuStreamEndCapture_ptsz")
def captures_per_thread(driver: Driver) -> None:
    _captures(driver, "_ptsz")


@exercise("cuStreamBeginCaptureToGraph")
def captures_to_a_graph(driver: Driver) -> None:
    _captures_to_a_graph(driver, "")


@exercise("cuStreamBeginCaptureToGraph_ptsz")
def captures_to_a_graph_per_thread(driver: Driver) -> None:
    _captures_to_a_graph(driver, "_ptsz")
