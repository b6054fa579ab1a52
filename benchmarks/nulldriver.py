"""Builds the null driver and a client against it in a temporary directory.

The driver must have every entry point that the shim or a rival asks for. Their names come from the
project's own declarations and from the shim's hook table, so that a new row needs no change here:
what ``native/null_driver.c`` does not define becomes a function of its own that returns success.
(Of its own, because a shim recognises what cuGetProcAddress answered by its address.)
"""

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import libvgpu
from libvgpu._compile import find_compiler
from libvgpu.errors import VgpuError
from libvgpu.hook_table import read_hook_table

#: NVML's name of the null driver's one device, whose UUID bytes are all zero.
DEVICE_UUID = "GPU-00000000-0000-0000-0000-000000000000"

_NATIVE = Path(__file__).resolve().parent / "native"
_TESTS = _NATIVE.parents[1] / "tests" / "native"
_INCLUDE = Path(libvgpu.__file__).resolve().parent / "include"
_PROTOTYPE = re.compile(r"^CUresult (cu\w+)\(", re.M)
_TWIN = re.compile(r"^VGPU_TWIN_(PTSZ|PTDS)\((\w+)\);", re.M)
_COMPILE_TIMEOUT_SECONDS = 60
_FLAGS = [
    "-std=gnu11",
    "-O2",
    "-fno-ipa-icf",  # else gcc makes one function of all that are alike
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
]


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """One function of the driver: ELF symbol, public name, first CUDA version of its ABI."""

    symbol: str
    public: str
    since: int


def entry_points() -> tuple[EntryPoint, ...]:
    """Returns what the null driver exports, by symbol."""
    header = (_INCLUDE / "vgpu" / "cuda_api.h").read_text()
    symbols = set(_PROTOTYPE.findall(header))
    symbols |= {f"{name}_{kind.lower()}" for kind, name in _TWIN.findall(header)}
    # A symbol that the hook table does not name is found by its own name, whatever the version.
    found = {symbol: EntryPoint(symbol, symbol, 0) for symbol in symbols}
    for row in read_hook_table():
        if row.symbol in found or (row.is_hooked and row.public_name):
            found[row.symbol] = EntryPoint(row.symbol, row.public_name, row.since)
    return tuple(found[symbol] for symbol in sorted(found))


def rest_source(points: tuple[EntryPoint, ...]) -> str:
    """Returns the C file of the other functions and of the table behind cuGetProcAddress."""
    lines = ["#include <string.h>"]
    lines += [f"__attribute__((weak)) int {point.symbol}(void) {{ return 0; }}" for point in points]
    lines.append("static const struct { const char *name; int since; int (*f)(void); } rows[] = {")
    # A plain lookup wants the legacy stream, so twins are left out.
    lines += [
        f'    {{"{point.public}", {point.since}, {point.symbol}}},'
        for point in points
        if not point.symbol.endswith(("_ptsz", "_ptds"))
    ]
    lines += [
        "};",
        "void *null_driver_find(const char *name, int version)",
        "{",
        "    void *best = 0;",
        "    int newest = -1;",
        "    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)",
        "        if (rows[i].since <= version && rows[i].since > newest &&",
        "            strcmp(rows[i].name, name) == 0) {",
        "            best = (void *)rows[i].f;",
        "            newest = rows[i].since;",
        "        }",
        "    return best;",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _compile(arguments: list[str]) -> None:
    result = subprocess.run(
        [*find_compiler(), *_FLAGS, f"-I{_INCLUDE}", *arguments],
        capture_output=True,
        text=True,
        timeout=_COMPILE_TIMEOUT_SECONDS,
    )
    if result.returncode != 0:
        raise VgpuError(f"a benchmark's C part does not compile: {result.stderr.strip()}")


def build_driver(directory: Path, source: Path = _NATIVE / "null_driver.c") -> Path:
    """Builds ``libcuda.so.1`` in ``directory`` and returns its path.

    Args:
        directory: for what is built.
        source: of what does more than return success.

    Raises:
        VgpuError: there is no compiler, or it fails.
    """
    rest = directory / "null_rest.c"
    rest.write_text(rest_source(entry_points()))
    library = directory / "libcuda.so.1"
    _compile(["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic",
              str(source), str(rest), "-o", str(library)])  # fmt: skip
    return library


def build_client(name: str, driver: Path, *further: str) -> Path:
    """Builds ``native/<name>.c`` with ``further`` ones against the driver; returns its path.

    What tests have, too, is in ``tests/native``.

    Raises:
        VgpuError: there is no compiler, or it fails.
    """
    program = driver.parent / name
    sources = [
        next(str(path) for at in (_NATIVE, _TESTS) if (path := at / f"{source}.c").exists())
        for source in (name, *further)
    ]
    _compile([*sources, str(driver), "-ldl", "-pthread", "-o", str(program)])
    return program


@contextmanager
def built_client(library: Path, name: str, *further: str) -> Iterator[Path]:
    """Builds a client against any driver, in a folder of its own that goes with the block.

    Args:
        library: the driver, whatever its file is called.
        name: as `build_client` has it, and so ``further``.

    Raises:
        VgpuError: there is no compiler, or it fails.
    """
    with tempfile.TemporaryDirectory(prefix="vgpu-bench-") as folder:
        driver = Path(folder, "libcuda.so.1")
        driver.symlink_to(library)
        yield build_client(name, driver, *further)


def build_preload(name: str, directory: Path, *parts: str) -> Path:
    """Builds ``native/<name>.c`` as a library to preload; returns its path.

    Args:
        name: of the library.
        directory: for what is built.
        parts: where it has several, their files in the folder ``native/<name>``.

    Raises:
        VgpuError: there is no compiler, or it fails.
    """
    library = directory / f"{name}.so"
    files = [f"{name}/{part}" for part in parts] or [name]
    sources = [str(_NATIVE / f"{file}.c") for file in files]
    _compile(
        ["-D_GNU_SOURCE", "-shared", "-fPIC", "-fno-builtin", *sources, "-ldl", "-o", str(library)]
    )
    return library
