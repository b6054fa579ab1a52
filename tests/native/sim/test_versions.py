"""Drivers of older CUDA versions: what they say, what they lack, what still runs on them."""

from pathlib import Path

import pytest

from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.driver_releases import RELEASES, DriverRelease, nvml_since
from libvgpu.hook_table import read_hook_table
from libvgpu.sim import PROFILES, Machine
from libvgpu.sim.spec import DRIVER_VERSIONS
from support.shim.symbols import exports
from support.sim.driver import folder_of, library_of
from support.sim.nvml_programs import NVML_PRELUDE
from support.sim.programs import said_in

FIRST_OF_BINDINGS = 12000


@pytest.mark.parametrize("version", DRIVER_VERSIONS.values())
def test_a_library_exports_what_its_version_had(version: int) -> None:
    wanted = {row.symbol for row in read_hook_table() if 0 < row.since <= version}

    assert exports(folder_of(version) / "libcuda.so.1") == wanted


CLIENT = """
open_context()
address = check(cuda.cuMemAlloc(1 << 20))
spinner = Spinner(1000)
spinner.launch()
check(cuda.cuCtxSynchronize())
library = ctypes.CDLL("libcuda.so.1")
say(version=check(cuda.cuDriverGetVersion()), newer=hasattr(library, "cuCtxSynchronize_v2"),
    there=hasattr(library, "cuCtxSynchronize"))
"""


# The bindings of CUDA 13 look all up by cuGetProcAddress_v2, which came with 12.0.
@pytest.mark.parametrize("version", [v for v in DRIVER_VERSIONS.values() if v >= FIRST_OF_BINDINGS])
def test_an_unmodified_client_runs_on_it(tmp_path: Path, version: int) -> None:
    machine = Machine.create([PROFILES["t4"]], tmp_path / "m", version)

    assert said_in(machine, CLIENT) == {
        "version": version,
        "newer": version >= DRIVER_VERSIONS["13.0"],
        "there": True,
    }


LINKED_CLIENT = """
library = ctypes.CDLL("libcuda.so.1")
version, address = ctypes.c_int(), ctypes.c_uint64()
results = [library.cuInit(0), library.cuDriverGetVersion(ctypes.byref(version)),
           library.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0)]
context = ctypes.c_void_p()
results.append(library.cuCtxCreate_v3(ctypes.byref(context), None, 0, 0, 0))
results.append(library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4096)))
say(results=results, version=version.value, newer=hasattr(library, "cuGetProcAddress_v2"))
"""


def test_the_oldest_has_what_older_programs_are_linked_with(tmp_path: Path) -> None:
    machine = Machine.create([PROFILES["t4"]], tmp_path / "m", DRIVER_VERSIONS["11.8"])

    assert said_in(machine, LINKED_CLIENT) == {
        "results": [0, 0, 0, 0, 0],
        "version": 11080,
        "newer": False,
    }


@pytest.mark.parametrize("release", RELEASES.values(), ids=lambda release: release.name)
def test_a_release_is_what_it_says_and_has_no_more(tmp_path: Path, release: DriverRelease) -> None:
    machine = Machine.create([PROFILES["t4"]], tmp_path / "m", release.cuda_version, release)
    library = library_of(machine, "libnvidia-ml.so.1")
    code = """
library = ctypes.CDLL("libnvidia-ml.so.1")
text, number = ctypes.create_string_buffer(80), ctypes.c_int()
assert library.nvmlInit_v2() == 0
assert library.nvmlSystemGetDriverVersion(text, 80) == 0
assert library.nvmlSystemGetCudaDriverVersion(ctypes.byref(number)) == 0
say(version=text.value.decode(), cuda=number.value)
"""

    assert said_in(machine, code) == {
        "version": release.version,
        "cuda": release.cuda_version,
    }
    assert exports(library) == nvml_since().keys() - release.lacks


#: From the headers of NVML: the first release that has a function, and the last that has not.
BORDERS = {
    "nvmlDeviceGetMemoryInfo_v2": ("520", "470"),
    "nvmlDeviceGetGpuFabricInfo": ("525", "520"),
    "nvmlDeviceGetConfComputeMemSizeInfo": ("535.54", "525"),
    "nvmlDeviceGetRunningProcessDetailList": ("535.104", "535.98"),
    "nvmlDeviceGetComputeRunningProcesses_v3": ("535.104", "535.98"),
    "nvmlDeviceGetNumaNodeId": ("550", "535.129"),
    "nvmlDeviceGetTemperatureV": ("570", "550"),
    "nvmlDeviceGetPdi": ("580", "570"),
}
FUNCTION_NOT_FOUND = 13


@pytest.mark.parametrize("function", BORDERS)
def test_pynvml_finds_a_function_from_the_release_on_that_brought_it(
    tmp_path: Path, function: str
) -> None:
    code = f"""
try:
    say(there=nvml._nvmlGetFunctionPointer("{function}") is not None)
except nvml.NVMLError as error:
    say(there=error.value)
"""
    said = []
    for name in BORDERS[function]:
        release = RELEASES[name]
        machine = Machine.create([PROFILES["t4"]], tmp_path / name, release.cuda_version, release)
        said.append(said_in(machine, NVML_PRELUDE + code)["there"])

    assert said == [True, FUNCTION_NOT_FOUND]


def test_the_driver_s_libraries_are_found_first_and_the_others_behind_them(tmp_path: Path) -> None:
    machine = Machine.create([PROFILES["t4"]], tmp_path / "m", DRIVER_VERSIONS["12.4"])

    path = machine.environment({"LD_LIBRARY_PATH": "/opt/lib"})["LD_LIBRARY_PATH"]

    first = [f"{SIM_LIBRARY_DIR}/{name}" for name in ("driver-550", "cuda-12.4")]
    assert path.split(":") == [*first, str(SIM_LIBRARY_DIR), "/opt/lib"]
