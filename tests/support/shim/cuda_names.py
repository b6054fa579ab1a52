"""All names of the driver API, read from NVIDIA's headers of several CUDA versions.

A header gives a function to programs under one name and maps it by macros to the symbol that the
library exports: the newest `_vN`, or a twin for the per-thread default stream. With
``__CUDA_API_VERSION_INTERNAL`` it declares all symbols as they are, so the preprocessor tells.
Which CUDA version brought which ABI is said by the typedefs that come with the headers.
"""

import functools
import re
from pathlib import Path
from typing import NamedTuple

from support import ROOT
from support.ended import run_to_end
from support.shim.headers import COMPILER, CUDA

WHEELS = ROOT / "tests/headers.txt"
UNPACKED = ROOT / "build/headers"
HEADERS = ("cuda.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h")
#: What those include and the wheels lack; nothing in it matters here.
FOREIGN = ("GL/gl.h", "EGL/egl.h", "EGL/eglext.h", "vdpau/vdpau.h", "cudaProfiler.h")
INTERNAL = "-D__CUDA_API_VERSION_INTERNAL"
PER_THREAD = "-DCUDA_API_PER_THREAD_DEFAULT_STREAM"
NEWEST = "newest"


class Abi(NamedTuple):
    """One form of a function: its public name, the version that brought it, and which twin."""

    name: str
    since: int
    twin: str  # "_ptsz", "_ptds" or ""


def versions() -> tuple[str, ...]:
    """Returns the versions that are compared with, and `NEWEST`."""
    lines = WHEELS.read_text().splitlines()
    return (*(line.split("==")[1] for line in lines if not line.startswith("#")), NEWEST)


def includes(version: str) -> Path | None:
    """Returns the folder with the headers of a version, None where they are not unpacked."""
    if version == NEWEST:
        return CUDA.path.parent if CUDA.path is not None else None
    return next((UNPACKED / version).glob("nvidia/*/include"), None)


@functools.cache
def symbols(include: Path, headers: tuple[str, ...] = HEADERS) -> frozenset[str]:
    """Returns the symbols that a library of that version exports, all versions and twins."""
    found: set[str] = set()
    for mode in ((), (INTERNAL,), (PER_THREAD,)):
        text = _preprocessed(include, tuple(h for h in headers if (include / h).exists()), mode)
        # Not what the header itself defines (`static inline`).
        found.update(re.findall(r"(?<!inline )\bCUresult\s+(cu[A-Z]\w*)\s*\(", text))
    return frozenset(found)


@functools.cache
def abis(include: Path, pattern: str = "cuda*Typedefs.h") -> frozenset[Abi]:
    """Returns the ABIs that the typedefs of that version tell of."""
    headers = tuple(sorted(path.name for path in include.glob(pattern)))
    found = re.findall(
        r"\*PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds)?\)", _preprocessed(include, headers, (INTERNAL,))
    )
    return frozenset(Abi(name, int(since), twin) for name, since, twin in found)


def _preprocessed(include: Path, headers: tuple[str, ...], flags: tuple[str, ...]) -> str:
    stubs = ROOT / "build/foreign-headers"
    for name in FOREIGN:
        (stubs / name).parent.mkdir(parents=True, exist_ok=True)
        (stubs / name).touch()
    return run_to_end(
        [str(COMPILER), "-E", "-P", *flags, f"-I{include}", f"-I{stubs}", "-x", "c", "-"],
        input="".join(f"#include <{name}>\n" for name in headers),
        check=True,
    ).stdout
