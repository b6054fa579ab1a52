"""cuGetProcAddress of the simulated driver: name, version and flags give one ABI."""

import ctypes
from pathlib import Path

import pytest

from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.sim import PROFILES, Machine
from support.sim.programs import said_in

DEFAULT, LEGACY, PER_THREAD = 0, 1, 2
SUCCESS, SYMBOL_NOT_FOUND, VERSION_NOT_SUFFICIENT = 0, 1, 2
INVALID_VALUE, NOT_SUPPORTED, NOT_FOUND = 1, 801, 500


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    return ctypes.CDLL(str(SIM_LIBRARY_DIR / "libcuda.so.1"))


def look_up(
    library: ctypes.CDLL, name: str, version: int, flags: int = DEFAULT
) -> tuple[int, int | None, int]:
    function, status = ctypes.c_void_p(), ctypes.c_int(-1)
    result = library.cuGetProcAddress_v2(
        name.encode(),
        ctypes.byref(function),
        version,
        ctypes.c_uint64(flags),
        ctypes.byref(status),
    )
    return result, function.value, status.value


def address(library: ctypes.CDLL, symbol: str) -> int | None:
    return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value


@pytest.mark.parametrize(
    ("name", "version", "flags", "symbol"),
    [
        ("cuMemAlloc", 2000, DEFAULT, "cuMemAlloc"),
        ("cuMemAlloc", 3020, DEFAULT, "cuMemAlloc_v2"),
        ("cuMemAlloc", 13000, DEFAULT, "cuMemAlloc_v2"),
        ("cuCtxCreate", 11030, DEFAULT, "cuCtxCreate_v2"),
        ("cuCtxCreate", 12040, DEFAULT, "cuCtxCreate_v3"),
        ("cuCtxCreate", 13000, DEFAULT, "cuCtxCreate_v4"),
        ("cuGetProcAddress", 11030, DEFAULT, "cuGetProcAddress"),
        ("cuGetProcAddress", 12000, DEFAULT, "cuGetProcAddress_v2"),
        ("cuLaunchKernel", 13000, DEFAULT, "cuLaunchKernel"),
        ("cuLaunchKernel", 13000, LEGACY, "cuLaunchKernel"),
        ("cuLaunchKernel", 13000, PER_THREAD, "cuLaunchKernel_ptsz"),
        ("cuLaunchKernel", 6000, PER_THREAD, "cuLaunchKernel"),
        ("cuMemcpyHtoD", 13000, PER_THREAD, "cuMemcpyHtoD_v2_ptds"),
        ("cuMemAlloc", 13000, PER_THREAD, "cuMemAlloc_v2"),
        ("cuEventElapsedTime", 12070, DEFAULT, "cuEventElapsedTime"),
        ("cuEventElapsedTime", 12080, DEFAULT, "cuEventElapsedTime_v2"),
    ],
)
def test_the_newest_abi_that_is_not_newer(
    library: ctypes.CDLL, name: str, version: int, flags: int, symbol: str
) -> None:
    assert look_up(library, name, version, flags) == (0, address(library, symbol), SUCCESS)


def test_a_name_that_came_later_says_so(library: ctypes.CDLL) -> None:
    assert look_up(library, "cuMemAllocAsync", 11010) == (0, None, VERSION_NOT_SUFFICIENT)


@pytest.mark.parametrize("name", ["cuNoSuchThing", "cuMemAlloc_v2", "cudaMalloc", ""])
def test_a_name_that_is_none_says_so(library: ctypes.CDLL, name: str) -> None:
    assert look_up(library, name, 13000) == (0, None, SYMBOL_NOT_FOUND)


def test_the_older_form_has_only_its_result_to_say_it(library: ctypes.CDLL) -> None:
    function = ctypes.c_void_p(1)

    result = library.cuGetProcAddress(b"cuNoSuchThing", ctypes.byref(function), 12000, 0)

    assert (result, function.value) == (NOT_FOUND, None)


@pytest.mark.parametrize(("version", "flags"), [(13010, DEFAULT), (13000, 8)])
def test_wrong_arguments_are_refused(library: ctypes.CDLL, version: int, flags: int) -> None:
    assert look_up(library, "cuInit", version, flags)[0] == INVALID_VALUE


def test_what_the_driver_does_not_do_exists_and_says_so(library: ctypes.CDLL) -> None:
    result, function, status = look_up(library, "cuTexRefCreate", 13000)

    assert (result, status) == (0, SUCCESS)
    assert ctypes.CFUNCTYPE(ctypes.c_int)(function or 0)() == NOT_SUPPORTED
    assert library.cuTexRefCreate() == NOT_SUPPORTED


def test_nothing_works_before_initialisation(library: ctypes.CDLL) -> None:
    count = ctypes.c_int()

    assert library.cuDeviceGetCount(ctypes.byref(count)) == 3


ASK = """
library = ctypes.CDLL("libcuda.so.1")
def ask(name, version, flags=0):
    function, status = ctypes.c_void_p(), ctypes.c_int(-1)
    result = library.cuGetProcAddress_v2(name.encode(), ctypes.byref(function), version,
                                         ctypes.c_uint64(flags), ctypes.byref(status))
    symbols = [name, name + "_v2", name + "_v3", name + "_v4", name + "_v2_ptsz", name + "_ptsz"]
    found = [each for each in symbols if function.value and hasattr(library, each) and
             ctypes.cast(getattr(library, each), ctypes.c_void_p).value == function.value]
    return [result, found[0] if found else None, status.value]
"""


# Of 11.8, on which these bindings do not start, test_sim_versions.py asks.
@pytest.mark.parametrize(
    ("driver", "newest_context", "green", "elapsed"),
    [
        (12040, "cuCtxCreate_v3", SUCCESS, "cuEventElapsedTime"),
        (12080, "cuCtxCreate_v4", SUCCESS, "cuEventElapsedTime_v2"),
        (13000, "cuCtxCreate_v4", SUCCESS, "cuEventElapsedTime_v2"),
    ],
)
def test_a_driver_knows_what_its_version_knew(
    tmp_path: Path, driver: int, newest_context: str, green: int, elapsed: str
) -> None:
    machine = Machine.create([PROFILES["t4"]], tmp_path / "m", driver_version=driver)
    code = f"""
say(version=check(cuda.cuDriverGetVersion()), newest=ask("cuCtxCreate", {driver}),
    old=ask("cuCtxCreate", 3020), green=ask("cuGreenCtxCreate", {driver})[2],
    wait=[ask("cuStreamWaitValue32", 8000)[1], ask("cuStreamWaitValue32", 11070)[1],
          ask("cuStreamWaitValue32", 11070, 2)[1]],
    elapsed=ask("cuEventElapsedTime", {driver})[1], newer=ask("cuInit", {driver + 10})[0],
    early=ask("cuLibraryLoadData", 11080)[2], suffix=ask("cuMemAlloc_v2", {driver})[2])
"""
    assert said_in(machine, ASK + code) == {
        "version": driver,
        "newest": [0, newest_context, SUCCESS],
        "old": [0, "cuCtxCreate_v2", SUCCESS],
        "green": green,
        "wait": [f"cuStreamWaitValue32{suffix}" for suffix in ("", "_v2", "_v2_ptsz")],
        "elapsed": elapsed,
        "newer": INVALID_VALUE,
        "early": VERSION_NOT_SUFFICIENT,
        "suffix": SYMBOL_NOT_FOUND,
    }
