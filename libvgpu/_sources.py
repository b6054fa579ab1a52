"""What the native artefacts are made of and how C is compiled: plain data, no package needed.

Both builders take it from here: `_build` with setuptools and cffi, and `_build_shim`, which needs a
C compiler alone.
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

# Parts of the shim that are pure (no CUDA, no interposition), so Python can use them as they are.
PURE_SHIM_SOURCES = [
    "libvgpu/src/slice/checksum.c",
    "libvgpu/src/slice/limits_file.c",
    "libvgpu/src/slice/usage_file.c",
    "libvgpu/src/slice/ledger.c",
    "libvgpu/src/compute/virtual_time.c",
    "libvgpu/src/compute/utilisation.c",
    "libvgpu/src/compute/wait_histogram.c",
    "libvgpu/src/compute/arrival.c",
    "libvgpu/src/compute/ration.c",
]
SHIM_SOURCES = ["libvgpu/src/*/*.c"]
ARBITER_SOURCES = ["libvgpu/arbiter/*.c"]
PLACEMENT_SOURCES = ["libvgpu/placement/*.c"]
SIM_CORE_SOURCES = ["libvgpu/sim/core/*.c"]
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
LINK_ARGS = [
    "-Wl,-z,defs",
    "-Wl,-Bsymbolic",
    "-Wl,-z,relro",
    "-Wl,--build-id=sha1",
    "-Wl,-z,nodelete",
]  # fork handlers must outlive a dlclose
LIBRARIES = ["dl", "pthread"]  # separate libraries before glibc 2.34


def sources(*patterns: str) -> list[str]:
    """Returns the files that match any of the patterns, all relative to `ROOT`."""
    return sorted(str(p.relative_to(ROOT)) for pattern in patterns for p in ROOT.glob(pattern))


def headers() -> list[str]:
    """Returns everything that a source may include."""
    return sources(
        "libvgpu/include/vgpu/*.h",
        "libvgpu/src/*/*.h",
        "libvgpu/src/*/*.def",
        "libvgpu/arbiter/*.h",
        "libvgpu/placement/*.h",
        "libvgpu/sim/*/*.h",
        "libvgpu/sim/*/*.def",
    )
