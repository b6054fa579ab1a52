"""Local memory that launches take is charged before them, and given back as the driver does."""

from pathlib import Path

import pytest

from libvgpu.sim import Machine
from libvgpu.sim.spec import DRIVER_VERSIONS
from support.shim.slices import Slice, SliceOf
from support.shim.walk import Look, assert_exact, walk
from support.sim.measured import measured_machine

GIB = 1 << 30
THREADS = 2048 * 132
LARGE = 33_528 << 20  # 128 KiB a thread, less the 1 KiB that every context has

START = """
from support.shim.cuda_client import *
check(driver.cuInit(0))
HEAD = ".version 7.0\\n.target sm_50\\n.address_size 64\\n"
def image(bytes):
    depot = ".local .align 8 .b8 depot[%d];" % bytes if bytes else ""
    return (HEAD + ".visible .entry loc()\\n{\\n%s\\nret;\\n}\\n\\0" % depot).encode()
def local(bytes):
    return check(driver.cuModuleGetFunction(check(driver.cuModuleLoadData(image(bytes))), b"loc"))
def kernel(bytes):
    library = check(driver.cuLibraryLoadData(image(bytes), [], [], 0, [], [], 0))
    return check(driver.cuLibraryGetKernel(library, b"loc"))
def launch(function, stream=0):
    return int(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0)[0])
def set_stack(bytes):
    check(driver.cuCtxSetLimit(driver.CUlimit.CU_LIMIT_STACK_SIZE, bytes))
def graph_of(function):
    stream = check(driver.cuStreamCreate(1))
    check(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode(0)))
    assert launch(function, stream) == 0
    graph = check(driver.cuStreamEndCapture(stream))
    check(driver.cuStreamDestroy(stream))
    return graph
context = open_context()
small = local(0)
assert launch(small) == 0
"""

FORMS = """
import ctypes
lib = ctypes.CDLL("libcuda.so.1")
class Config(ctypes.Structure):
    _fields_ = [("shape", ctypes.c_uint * 7), ("stream", ctypes.c_void_p),
                ("attributes", ctypes.c_void_p), ("count", ctypes.c_uint)]
class Part(ctypes.Structure):
    _fields_ = [("function", ctypes.c_void_p), ("shape", ctypes.c_uint * 7),
                ("stream", ctypes.c_void_p), ("parameters", ctypes.c_void_p)]
ONE = (1, 1, 1, 1, 1, 1, 0)
stream = int(check(driver.cuStreamCreate(1)))
config = Config((ctypes.c_uint * 7)(*ONE), stream)
def handle(function): return ctypes.c_void_p(int(function))
def kernel_launch(symbol):
    return lambda f: getattr(lib, symbol)(handle(f), *ONE, ctypes.c_void_p(stream), None, None)
def extended(symbol):
    return lambda f: getattr(lib, symbol)(ctypes.byref(config), handle(f), None, None)
def old(symbol, *arguments):
    def call(f):
        assert lib.cuFuncSetBlockShape(handle(f), 1, 1, 1) == 0
        return getattr(lib, symbol)(handle(f), *arguments)
    return call
def several(f):
    parts = (Part * 1)(Part(int(f), (ctypes.c_uint * 7)(*ONE), stream))
    return lib.cuLaunchCooperativeKernelMultiDevice(parts, 1, 0)
def instantiated(f): return int(driver.cuGraphInstantiate(graph_of(f), 0)[0])
def added(f):
    graph = check(driver.cuGraphCreate(0))
    node = driver.CUDA_KERNEL_NODE_PARAMS()
    node.kern = driver.CUkernel(int(f)) if make is kernel else None
    node.func = None if make is kernel else f
    node.gridDimX = node.gridDimY = node.gridDimZ = 1
    node.blockDimX = node.blockDimY = node.blockDimZ = 1
    check(driver.cuGraphAddKernelNode(graph, None, 0, node))
    return int(driver.cuGraphInstantiate(graph, 0)[0])
forms = {
    **{name: kernel_launch(name) for name in (
        "cuLaunchKernel", "cuLaunchKernel_ptsz",
        "cuLaunchCooperativeKernel", "cuLaunchCooperativeKernel_ptsz")},
    **{name: extended(name) for name in ("cuLaunchKernelEx", "cuLaunchKernelEx_ptsz")},
    "cuLaunch": old("cuLaunch"), "cuLaunchGrid": old("cuLaunchGrid", 1, 1),
    "cuLaunchGridAsync": old("cuLaunchGridAsync", 1, 1, ctypes.c_void_p(stream)),
    "several": several, "instantiated": instantiated, "added": added,
}
"""
ALL_FORMS = 12


@pytest.fixture
def measured(tmp_path: Path) -> Machine:
    return measured_machine(tmp_path)


def grown(looks: dict[str, Look], name: str) -> int:
    return looks[name].charged_bytes - looks["none"].charged_bytes


@pytest.mark.parametrize("core_percent", [100, 50])
def test_what_does_not_fit_is_refused_and_the_next_kernel_runs(
    measured: Machine, slice_of: SliceOf, core_percent: int
) -> None:
    part = slice_of(measured, memory_bytes=4 * GIB, core_percent=core_percent)
    code = """
look("none")
large = local(128 << 10)
print(launch(small), launch(large), launch(large), launch(small))
graph = graph_of(large)
print(int(driver.cuGraphInstantiate(graph, 0)[0]), launch(small))
look("refused")
"""

    looks, words = walk(part, START + code)

    assert words == ["0", "2", "2", "0", "2", "0"]
    assert looks["refused"].charged_bytes - looks["none"].charged_bytes <= 4 << 20  # a stream's
    assert looks["refused"].taken_bytes <= 4 * GIB


@pytest.mark.parametrize("make", ["local", "kernel"])
def test_each_form_of_launch_is_refused_where_it_does_not_fit(
    measured: Machine, slice_of: SliceOf, make: str
) -> None:
    part = slice_of(measured, memory_bytes=4 * GIB)
    code = f"""
make = {make}
look("none")
for name, form in forms.items():
    print(form(make(128 << 10)))
look("refused")
"""

    looks, words = walk(part, START + FORMS + code)

    assert words == ["2"] * ALL_FORMS
    assert looks["refused"] == looks["none"]


@pytest.fixture
def part(measured: Machine, slice_of: SliceOf) -> Slice:
    return slice_of(measured, memory_bytes=40 * GIB)


@pytest.mark.parametrize("make", ["local", "kernel"])
def test_each_form_of_launch_is_charged_what_it_takes(make: str, part: Slice) -> None:
    code = f"""
make = {make}
for name, form in forms.items():
    function = make(128 << 10)
    look("before " + name)
    assert form(function) == 0
    look(name)
    set_stack(1024)
"""

    looks, _ = walk(part, START + FORMS + code)

    grown_by = {
        name: (
            look.charged_bytes - looks[f"before {name}"].charged_bytes,
            look.taken_bytes - looks[f"before {name}"].taken_bytes,
        )
        for name, look in looks.items()
        if not name.startswith("before ")
    }
    assert len(grown_by) == ALL_FORMS
    assert set(grown_by.values()) == {(LARGE, LARGE)}


def test_a_kernel_of_a_library_is_asked_just_before_its_first_launch(
    measured: Machine, slice_of: SliceOf
) -> None:
    if measured.driver_version < DRIVER_VERSIONS["12.8"]:
        pytest.skip("asks cuKernelGetLibrary, of CUDA 12.5")
    part = slice_of(measured, memory_bytes=4 * GIB)
    code = """
def is_loaded(kernel):
    return int(check(driver.cuFuncIsLoaded(driver.CUfunction(int(kernel)))))
one, large, enumerated = kernel(0), kernel(128 << 10), kernel(64)
library = check(driver.cuKernelGetLibrary(enumerated))
check(driver.cuLibraryEnumerateKernels(1, library))
print(is_loaded(one), is_loaded(large), is_loaded(enumerated))
assert launch(one) == 0
print(is_loaded(one), is_loaded(large), is_loaded(enumerated))
assert launch(large) == 2
print(is_loaded(one), is_loaded(large), is_loaded(enumerated))
"""

    assert walk(part, START + code)[1] == ["0", "0", "0", "1", "0", "0", "1", "1", "0"]


@pytest.mark.parametrize("make", ["local", "kernel"])
def test_what_is_prepaid_is_charged_again_when_the_stack_limit_gave_it_back(
    measured: Machine, slice_of: SliceOf, make: str
) -> None:
    part = slice_of(measured, memory_bytes=40 * GIB, core_percent=50)
    code = f"""
one = {make}(8192)
for _ in range(2000): assert launch(one) == 0
set_stack(1024); look("none")
assert launch(one) == 0
look("again")
"""

    looks, _ = walk(part, START + code)

    assert_exact(looks)
    assert grown(looks, "again") == 7168 * THREADS


def test_a_kernel_that_is_prepaid_in_one_context_is_charged_in_another(
    measured: Machine, slice_of: SliceOf
) -> None:
    part = slice_of(measured, memory_bytes=70 * GIB, core_percent=50)
    code = """
other = check(create_context())
check(driver.cuCtxSetCurrent(context))
one = kernel(8192)
for _ in range(2000): assert launch(one) == 0
look("first")
check(driver.cuCtxSetCurrent(other))
for _ in range(3): assert launch(one) == 0
look("both")
"""

    looks, _ = walk(part, START + code)

    assert_exact(looks)
    assert looks["both"].charged_bytes - looks["first"].charged_bytes == 7168 * THREADS


@pytest.mark.parametrize("core_percent", [100, 50])
@pytest.mark.parametrize("make", ["local", "kernel"])
def test_it_is_charged_at_the_first_launch_kept_and_given_back(
    measured: Machine, slice_of: SliceOf, make: str, core_percent: int
) -> None:
    part = slice_of(measured, memory_bytes=40 * GIB, core_percent=core_percent)
    code = f"""
look("none")
large, middle = {make}(128 << 10), {make}(4096)
print(launch(small)); look("handed_out")
print(launch(large)); look("first")
print(launch(large), launch(middle)); look("again")
set_stack(1024); look("shrunk")
print(launch(small)); look("still_shrunk")
print(launch(middle)); look("middle")
print(launch(large)); look("large")
set_stack(2048); look("set")
check(driver.cuDevicePrimaryCtxReset(0)); look("ended")
"""

    looks, words = walk(part, START + code)

    assert set(words) == {"0"}
    assert grown(looks, "handed_out") == 0
    assert grown(looks, "first") == grown(looks, "again") == grown(looks, "large") == LARGE
    assert grown(looks, "shrunk") == grown(looks, "still_shrunk") == 0
    assert grown(looks, "middle") == 3072 * THREADS
    assert grown(looks, "set") == 1024 * THREADS
    assert_exact(looks)


def test_a_launch_that_the_driver_refuses_leaves_nothing_charged(part: Slice) -> None:
    code = """
large = local(128 << 10)
look("none")
print(int(driver.cuLaunchKernel(large, 1, 1, 1, 4096, 1, 1, 0, 0, 0, 0)[0])); look("refused")
print(launch(large)); look("launched")
"""

    looks, words = walk(part, START + code)

    assert words[0] != "0" and words[1] == "0"
    assert grown(looks, "refused") == 0
    assert grown(looks, "launched") == LARGE


def test_what_a_device_takes_none_of_at_launches_is_not_charged(
    costly_machine: Machine, slice_of: SliceOf
) -> None:
    part = slice_of(costly_machine, memory_bytes=40 * GIB)
    code = """
look("none")
large = local(128 << 10)
print(launch(large)); look("first")
held = check(driver.cuMemAlloc(20 << 30)); look("held")
print(launch(large)); look("reserved")
check(driver.cuMemFree(held))
print(launch(large)); look("second")
held = check(driver.cuMemAlloc(20 << 30))
print(launch(large), launch(local(64 << 10))); look("settled")
check(driver.cuMemFree(held))
print(launch(local(130 << 10))); look("more")
set_stack(2048); look("set")
print(launch(large)); look("again")
"""

    looks, words = walk(part, START + code)

    assert words == ["0", "2", "0", "0", "0", "0", "0"], "one look is no verdict, two are one"
    assert_exact(looks)
    assert grown(looks, "more") == 0
    assert grown(looks, "again") == grown(looks, "set") == 1024 * THREADS


@pytest.mark.parametrize("launches", [1, 2, 3])
@pytest.mark.parametrize("core_percent", [100, 50])
def test_what_slack_absorbs_says_nothing_of_a_kernel_that_needs_more(
    tmp_path: Path, slice_of: SliceOf, launches: int, core_percent: int
) -> None:
    machine = measured_machine(tmp_path, local_slack_bytes=256 << 20)
    part = slice_of(machine, memory_bytes=8 * GIB, core_percent=core_percent)
    code = f"""
look("none")
absorbed, middle, large = local(1536), local(16 << 10), local(128 << 10)
for _ in range({launches}): assert launch(absorbed) == 0
look("absorbed")
print(launch(large)); look("refused")
print(launch(middle)); look("middle")
print(launch(large), launch(absorbed)); look("refused_again")
"""

    looks, words = walk(part, START + code)

    assert words == ["2", "0", "2", "0"]
    assert_exact(looks)
    assert grown(looks, "refused") == 0
    assert grown(looks, "refused_again") == grown(looks, "middle") == (15 << 10) * THREADS


def test_a_device_that_took_some_after_all_is_charged_as_computed_again(
    tmp_path: Path, slice_of: SliceOf
) -> None:
    machine = measured_machine(tmp_path, local_slack_bytes=256 << 20)
    part = slice_of(machine, memory_bytes=8 * GIB)
    code = """
absorbed, middle = local(1536), local(16 << 10)
for _ in range(3): assert launch(absorbed) == 0
assert launch(middle) == 0
other = check(create_context())
look("none")
assert launch(local(1536)) == 0
look("absorbed")
"""

    looks, _ = walk(part, START + code)

    assert grown(looks, "absorbed") == 512 * THREADS


def test_a_growth_of_less_than_64_mib_is_charged_whatever_nvml_shows(
    tmp_path: Path, slice_of: SliceOf
) -> None:
    part = slice_of(measured_machine(tmp_path, local_slack_bytes=256 << 20), memory_bytes=4 * GIB)
    code = """
look("none")
print(launch(local(1200)), launch(local(128 << 10))); look("small")
"""

    looks, words = walk(part, START + code)

    assert words == ["0", "2"]
    assert grown(looks, "small") == pytest.approx(176 * THREADS, abs=2 << 20)
    assert looks["small"].taken_bytes == looks["none"].taken_bytes


def test_what_rounding_adds_is_charged_at_the_next_quiet_moment(
    tmp_path: Path, slice_of: SliceOf
) -> None:
    part = slice_of(measured_machine(tmp_path, local_step_bytes=4096), memory_bytes=4 * GIB)
    code = """
look("none")
for bytes in (1040, 2048, 4096):
    assert launch(local(bytes)) == 0
    check(driver.cuMemFree(check(driver.cuMemAlloc(4 << 20)))); look(str(bytes))
"""

    looks, _ = walk(part, START + code)

    assert_exact(looks)
    assert {grown(looks, name) for name in ("1040", "2048", "4096")} == {3072 * THREADS}


@pytest.mark.parametrize("make", ["local", "kernel"])
@pytest.mark.parametrize("core_percent", [100, 50])
def test_each_context_has_its_own(
    measured: Machine, slice_of: SliceOf, make: str, core_percent: int
) -> None:
    part = slice_of(measured, memory_bytes=70 * GIB, core_percent=core_percent)
    code = f"""
one = {make}(8192)
look("none")
for _ in range(20): assert launch(one) == 0
look("first")
other = check(create_context()); look("other")
if "{make}" == "local": one = local(8192)
for _ in range(20): assert launch(one) == 0
look("both")
check(driver.cuCtxDestroy(other)); look("other_ended")
"""

    looks, _ = walk(part, START + code)

    assert_exact(looks)
    assert grown(looks, "first") == 7168 * THREADS
    assert looks["both"].charged_bytes - looks["other"].charged_bytes == 7168 * THREADS
    assert looks["other_ended"] == looks["first"]


def test_a_graph_is_charged_when_it_is_made_executable_or_updated(part: Slice) -> None:
    code = """
one, two = graph_of(local(8192)), graph_of(local(16384))
look("none")
executable = check(driver.cuGraphInstantiate(one, 0)); look("made")
check(driver.cuGraphLaunch(executable, 0)); look("launched")
print(int(driver.cuGraphExecUpdate(executable, two)[0])); look("updated")
check(driver.cuGraphLaunch(executable, 0)); look("again")
"""

    looks, words = walk(part, START + code)

    assert words == ["0"]
    assert grown(looks, "made") == grown(looks, "launched") == 7168 * THREADS
    assert looks["made"].taken_bytes - looks["none"].taken_bytes == 7168 * THREADS
    assert grown(looks, "updated") == grown(looks, "again") == 15360 * THREADS


def test_threads_that_race_to_launch_first_are_charged_once(part: Slice) -> None:
    code = """
import threading
look("none")
large, other = local(64 << 10), local(32 << 10)
codes = []
def run(function):
    check(driver.cuCtxSetCurrent(context))
    for _ in range(20): codes.append(launch(function))
threads = [threading.Thread(target=run, args=(f,)) for f in (large, other, small, large) * 2]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(*set(codes)); look("all")
set_stack(1024); look("shrunk")
"""

    looks, words = walk(part, START + code)

    assert words == ["0"]
    assert_exact(looks)
    assert grown(looks, "all") == 63 * 1024 * THREADS
    assert grown(looks, "shrunk") == 0
