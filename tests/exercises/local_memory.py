"""Exercises of what hands functions out, and puts them into graphs: local memory is charged."""

import ctypes
from collections.abc import Callable
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

from support.exercise.driver import Driver, exercise
from support.shim.device_code import ptx

NO_OPTIONS = (None, None, 0, None, None, 0)
STACK, KERNEL_NODE = 0, 0
ONE_THREAD = (1, 1, 1, 1, 1, 1, 0)
#: A thread's, of which the store cannot be left out.
LOCAL_BYTES = 4096
USES = """
.reg .u32 %i; .reg .u64 %a, %b;
mov.u32 %i, %tid.x; mul.wide.u32 %b, %i, 4; mov.u64 %a, depot; add.u64 %a, %a, %b;
st.volatile.local.u32 [%a], %i; ld.volatile.local.u32 %i, [%a];
"""


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS."""

    _fields_ = (
        ("function", c_void_p),
        ("shape", c_uint * 7),
        ("parameters", c_void_p),
        ("extra", c_void_p),
        ("kernel", c_void_p),
        ("context", c_void_p),
    )


class NodeParams(ctypes.Structure):
    """CUgraphNodeParams, of a kernel."""

    _fields_ = (("type", c_int), ("reserved", c_int * 3), ("words", c_uint64 * 30))


def _image() -> bytes:
    depot = f".local .align 8 .b8 depot[{LOCAL_BYTES}];"
    return ptx(f".visible .entry large()\n{{\n{depot}\n{USES}\nret;\n}}\n"
               ".visible .entry small()\n{\nret;\n}\n")  # fmt: skip


def _launch(driver: Driver, function: Any) -> None:
    driver.check("cuLaunchKernel", function, *ONE_THREAD, None, None, None)


def _module(driver: Driver) -> c_void_p:
    module = c_void_p()
    driver.check("cuModuleLoadData", byref(module), _image())
    return module


def _function(driver: Driver, module: c_void_p, name: bytes) -> c_void_p:
    function = c_void_p()
    driver.check("cuModuleGetFunction", byref(function), module, name)
    return function


def _give_back(driver: Driver) -> None:
    default = c_size_t()
    driver.check("cuCtxGetLimit", byref(default), STACK)
    driver.check("cuCtxSetLimit", STACK, default.value)


def _takes(driver: Driver, function: Any) -> int:
    """Launches it, asserts that what it takes is charged, and returns that."""
    taken, charged = driver.device_bytes(), driver.used()
    _launch(driver, function)
    given = driver.device_bytes() - taken
    assert driver.used() - charged == given
    _launch(driver, function)
    assert driver.used() - charged == given
    with driver.charged(-given, "other", given=True):
        _give_back(driver)
    if given > 0:
        with driver.full(left_bytes=given - 1):
            driver.refuse("cuLaunchKernel", function, *ONE_THREAD, None, None, None)
    return given


@exercise("cuModuleGetFunction")
def functions(driver: Driver) -> None:
    module = _module(driver)
    _takes(driver, _function(driver, module, b"large"))
    driver.check("cuModuleUnload", module)


@exercise("cuModuleEnumerateFunctions")
def enumerated_functions(driver: Driver) -> None:
    module, both = _module(driver), (c_void_p * 2)()
    taken = _takes(driver, _function(driver, module, b"large"))
    driver.check("cuModuleUnload", module)
    module = _module(driver)
    driver.check("cuModuleEnumerateFunctions", both, 2, module)
    charged = driver.used()
    for each in both:
        _launch(driver, c_void_p(each))
    assert driver.used() - charged == taken
    _give_back(driver)
    driver.check("cuModuleUnload", module)


@exercise("cuKernelGetFunction")
def functions_of_kernels(driver: Driver) -> None:
    library, kernel, function = c_void_p(), c_void_p(), c_void_p()
    driver.check("cuLibraryLoadData", byref(library), _image(), *NO_OPTIONS)
    driver.check("cuLibraryGetKernel", byref(kernel), library, b"large")
    taken = _takes(driver, kernel)
    driver.check("cuKernelGetFunction", byref(function), kernel)
    assert _takes(driver, function) == taken
    driver.check("cuLibraryUnload", library)


def _captured(driver: Driver, function: Any) -> tuple[c_void_p, c_void_p]:
    """A graph with a launch of the function, and its node."""
    stream, graph, node, count = c_void_p(), c_void_p(), c_void_p(), c_size_t(1)
    driver.check("cuStreamCreate", byref(stream), 1)
    driver.check("cuStreamBeginCapture_v2", stream, 0)
    driver.check("cuLaunchKernel", function, *ONE_THREAD, stream, None, None)
    driver.check("cuStreamEndCapture", stream, byref(graph))
    driver.check("cuStreamDestroy_v2", stream)
    driver.check("cuGraphGetNodes", graph, byref(node), byref(count))
    return graph, node


def _changes(driver: Driver, *symbols: str) -> None:
    """Has each change an executable graph, of which a kernel then needs more."""
    module = _module(driver)
    large, small = (_function(driver, module, name) for name in (b"large", b"small"))
    taken = _takes(driver, large)
    graph, node = _captured(driver, small)
    larger, _ = _captured(driver, large)
    params = KernelNode(large, (c_uint * 7)(*ONE_THREAD))
    generic = NodeParams(KERNEL_NODE)
    ctypes.memmove(generic.words, byref(params), ctypes.sizeof(params))
    child, outer = c_void_p(), c_void_p()
    driver.check("cuGraphCreate", byref(outer), 0)
    driver.check("cuGraphAddChildGraphNode", byref(child), outer, None, 0, graph)
    answer = ctypes.create_string_buffer(64)
    arguments: dict[str, Callable[[Any], tuple[Any, ...]]] = {
        "cuGraphExecUpdate": lambda made: (made, larger, None, answer),
        "cuGraphExecUpdate_v2": lambda made: (made, larger, answer),
        "cuGraphExecKernelNodeSetParams": lambda made: (made, node, byref(params)),
        "cuGraphExecKernelNodeSetParams_v2": lambda made: (made, node, byref(params)),
        "cuGraphExecNodeSetParams": lambda made: (made, node, byref(generic)),
        "cuGraphExecChildGraphNodeSetParams": lambda made: (made, child, larger),
    }
    for symbol in symbols:
        made = c_void_p()
        base = outer if "Child" in symbol else graph
        driver.check("cuGraphInstantiateWithFlags", byref(made), base, 0)
        if taken > 0:
            with driver.full(left_bytes=taken - 1):
                driver.refuse(symbol, *arguments[symbol](made))
        with driver.charged(taken, "other"):
            driver.check(symbol, *arguments[symbol](made))
        with driver.charged(-taken, "other"):
            _give_back(driver)
        driver.check("cuGraphExecDestroy", made)
    for each in (graph, larger, outer):
        driver.check("cuGraphDestroy", each)
    driver.check("cuModuleUnload", module)


@exercise("cuGraphExecUpdate", "cuGraphExecKernelNodeSetParams",
          "cuGraphExecChildGraphNodeSetParams")  # fmt: skip
def changed_graphs(driver: Driver) -> None:
    _changes(driver, "cuGraphExecUpdate", "cuGraphExecKernelNodeSetParams",
             "cuGraphExecChildGraphNodeSetParams")  # fmt: skip


@exercise("cuGraphExecUpdate_v2", "cuGraphExecKernelNodeSetParams_v2")
def changed_graphs_since_12(driver: Driver) -> None:
    _changes(driver, "cuGraphExecUpdate_v2", "cuGraphExecKernelNodeSetParams_v2")


@exercise("cuGraphExecNodeSetParams")
def changed_graphs_by_any_node(driver: Driver) -> None:
    _changes(driver, "cuGraphExecNodeSetParams")
