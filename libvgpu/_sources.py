"""What the native artefacts are made of and how C is compiled: plain data, no package needed.

`_build` takes it from here, and so do benchmarks and tests that compile parts of it.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

INCLUDES = [
    "libvgpu/include",
    "libvgpu/src",
    "libvgpu/sim/core",
    "libvgpu/arbiter",
    "libvgpu/placement",
]
#: Our own declarations of what cffi's generated code calls, for that file alone.
PYTHON_HEADERS = "libvgpu/include/python"

#: How a process is seen to live: part of the shim, and of the simulated machine.
LIFE_SOURCE = "libvgpu/src/slice/life.c"
# Parts of the shim that are pure (no CUDA, no interposition), so Python can use them as they are.
PURE_SHIM_SOURCES = [
    LIFE_SOURCE,
    "libvgpu/src/slice/checksum.c",
    "libvgpu/src/slice/limits_file.c",
    "libvgpu/src/slice/usage_file.c",
    "libvgpu/src/slice/ledger.c",
    "libvgpu/src/compute/cap/virtual_time.c",
    "libvgpu/src/compute/measure/utilisation.c",
    "libvgpu/src/compute/cap/launch_queue.c",
    "libvgpu/src/compute/measure/ration.c",
]
SHIM_SOURCES = ["libvgpu/src/**/*.c"]
ARBITER_SOURCES = ["libvgpu/arbiter/*.c"]
PLACEMENT_SOURCES = ["libvgpu/placement/*.c"]
SIM_CORE_SOURCES = ["libvgpu/sim/core/*.c", LIFE_SOURCE]
SIM_DRIVER_SOURCES = ["libvgpu/sim/driver/*.c"]
SIM_NVML_SOURCES = ["libvgpu/sim/nvml/*.c"]

# What cffi reads, in this order. Each file holds only what cffi's parser takes once the
# preprocessor lines are gone, apart from blocks under `#ifndef VGPU_CFFI`.
CFFI_HEADERS = [
    "libvgpu/include/vgpu/contract.h",
    "libvgpu/src/slice/life.h",
    "libvgpu/src/slice/checksum.h",
    "libvgpu/src/slice/limits_file.h",
    "libvgpu/src/slice/usage_file.h",
    "libvgpu/src/slice/ledger.h",
    "libvgpu/src/compute/cap/virtual_time.h",
    "libvgpu/src/compute/measure/utilisation.h",
    "libvgpu/arbiter/window_times.h",
    "libvgpu/arbiter/demand.h",
    "libvgpu/arbiter/policy.h",
    "libvgpu/arbiter/arbiter.h",
    "libvgpu/placement/fractions.h",
    "libvgpu/placement/json_count.h",
    "libvgpu/src/compute/cap/launch_queue.h",
    "libvgpu/src/compute/measure/ration.h",
    "libvgpu/sim/core/machine_api.h",
]

#: The only architecture so far; what depends on it is a file each.
MACHINE = "x86_64"

COMPILE_ARGS = [
    "-std=gnu11",
    "-D_GNU_SOURCE",
    "-O2",
    "-g1",
    "-fvisibility=hidden",
    "-fno-strict-aliasing",  # the contract is read through several views of the same bytes
    "-ffile-prefix-map=" + str(ROOT) + "=.",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",  # stubs and hooks keep the driver's full signatures
]
# The simulated driver tells by its own frames which entry point was called (driver/handle.c).
KEEP_FRAMES = ["-fno-optimize-sibling-calls"]
LINK_ARGS = [
    "-Wl,-z,defs",
    "-Wl,-Bsymbolic",
    "-Wl,-z,relro",
    "-Wl,--build-id=sha1",
    "-Wl,-z,nodelete",
]  # fork handlers must outlive a dlclose
LIBRARIES = ["dl", "pthread"]  # separate libraries before glibc 2.34


def sources(*patterns: str) -> list[str]:
    """Returns the files that match any of the patterns, each once, all relative to `ROOT`."""
    return sorted({str(p.relative_to(ROOT)) for pattern in patterns for p in ROOT.glob(pattern)})
