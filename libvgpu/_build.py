"""Builds the native artefacts of the project; ``python3 -m libvgpu._build [TARGET...]``.

==================  ==========================================  ===================================
target              file                                        made of
==================  ==========================================  ===================================
``shim``            ``libvgpu/libvgpu.so``                      ``src/**/*.c``
``libcuda``         ``libvgpu/sim/lib/libcuda.so.1``            ``sim/driver/*.c``, ``sim/core/*.c``
``libnvidia_ml``    ``libvgpu/sim/lib/libnvidia-ml.so.1``       ``sim/nvml/*.c``, ``sim/core/*.c``
``native``          ``libvgpu/_native.abi3.so``                 cffi over the shared headers,
                                                                ``arbiter/*.c``, ``placement/*.c``,
                                                                ``sim/core/*.c``, pure ``src`` files
==================  ==========================================  ===================================

The simulated libraries have ``src/slice/life.c``, too. Each C file is compiled once (`_compile`);
targets share the objects that they have in common. An older driver lacks entry points. So the
objects of ``libcuda`` are linked once more for each CUDA version of ``driver_releases.py`` but the
default one, into ``sim/lib/cuda-X.Y/``, and export what ``src/hooks/hooks.def`` says was there.
NVML is linked once more for each release but the default one, into ``sim/lib/driver-NAME/``, by
``sim/nvml/entries.def``.

A C compiler is enough, except for ``native``, which needs cffi. ``pip install .`` comes here
through `_setuptools`. ``VGPU_PORTABLE=1`` (``make wheel``) compiles with zig against the symbols of
glibc 2.17. ``--werror`` fails where the compiler warned (``make lint``). A user's
compiler may warn about things that ours does not, and must still be able to build.
"""

import fcntl
import hashlib
import os
import platform
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ._compile import Compiler, compile_all, find_compiler, link, said_of
from ._sources import (
    ARBITER_SOURCES,
    CFFI_HEADERS,
    COMPILE_ARGS,
    INCLUDES,
    KEEP_FRAMES,
    LIBRARIES,
    LINK_ARGS,
    MACHINE,
    PLACEMENT_SOURCES,
    PURE_SHIM_SOURCES,
    PYTHON_HEADERS,
    ROOT,
    SHIM_SOURCES,
    SIM_CORE_SOURCES,
    SIM_DRIVER_SOURCES,
    SIM_NVML_SOURCES,
    sources,
)
from .driver_releases import CUDA_VERSIONS, DEFAULT_CUDA, RELEASES, release_of_cuda
from .errors import VgpuError
from .hook_table import HookRow, read_hook_table

SHIM, LIBCUDA, LIBNVIDIA_ML, NATIVE = "shim", "libcuda", "libnvidia_ml", "native"
#: Where each target goes, below the root or a folder that is laid out like it.
FILES = {
    SHIM: "libvgpu/libvgpu.so",
    LIBCUDA: "libvgpu/sim/lib/libcuda.so.1",
    LIBNVIDIA_ML: "libvgpu/sim/lib/libnvidia-ml.so.1",
    NATIVE: "libvgpu/_native.abi3.so",
}
TARGETS = tuple(FILES)

_BUILD = ROOT / "build"
_OBJECTS = _BUILD / "objects"
_NATIVE_SOURCE = "build/cffi/_native.c"

# The shim is loaded into whatever image a container has; glibc 2.17 is CentOS 7's, and what pip
# calls manylinux2014. Only the linker's list of symbols is older: it runs on every newer glibc.
PORTABLE_COMPILER = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu.2.17"]


def is_portable() -> bool:
    """Says whether this build is one for every glibc from 2.17 on."""
    return os.environ.get("VGPU_PORTABLE", "") not in ("", "0")


def version_script(rows: Iterable[HookRow], driver_version: int) -> str:
    """Returns a linker script that exports what a driver of that version has.

    Args:
        rows: the table of entry points; NVML's, which have no version, are left out.
        driver_version: 12080 for CUDA 12.8.
    """
    there = "".join(f"    {row.symbol};\n" for row in rows if 0 < row.since <= driver_version)
    return "{\n  global:\n" + there + "  local:\n    *;\n};\n"


def lacking_script(lacks: Iterable[str]) -> str:
    """Returns a linker script that exports what NVML has, apart from some functions."""
    hidden = "".join(f"    {symbol};\n" for symbol in sorted(lacks))
    return "{\n  global:\n    nvml*;\n  local:\n" + hidden + "};\n"


def _scripts(target: str) -> dict[str, str]:
    """Returns the linker script of each library of a target, by its file; "" exports all."""
    scripts = {FILES[target]: ""}
    if target == LIBCUDA:
        rows = read_hook_table()
        for words, number in CUDA_VERSIONS.items():
            other = f"libvgpu/sim/lib/cuda-{words}/libcuda.so.1"
            file = FILES[target] if number == DEFAULT_CUDA else other
            scripts[file] = version_script(rows, number)
    if target == LIBNVIDIA_ML:
        for name, release in RELEASES.items():
            other = f"libvgpu/sim/lib/driver-{name}/libnvidia-ml.so.1"
            file = FILES[target] if release is release_of_cuda(DEFAULT_CUDA) else other
            scripts[file] = lacking_script(release.lacks) if release.lacks else ""
    return scripts


@dataclass(frozen=True, slots=True)
class _Part:
    """What a target is linked of, and how."""

    files: tuple[str, ...]
    flags: tuple[str, ...]


def _plain(target: str, *patterns: str) -> _Part:
    soname = f"-Wl,-soname,{Path(FILES[target]).name}"
    flags = (*LINK_ARGS, soname, *(f"-l{name}" for name in LIBRARIES))
    return _Part(tuple(sources(*patterns)), flags)


def _parts(targets: Collection[str]) -> dict[str, _Part]:
    parts = (*PURE_SHIM_SOURCES, *ARBITER_SOURCES, *PLACEMENT_SOURCES, *SIM_CORE_SOURCES)
    native = (*sources(*parts), _NATIVE_SOURCE)
    every = {
        SHIM: _plain(SHIM, *SHIM_SOURCES),
        LIBCUDA: _plain(LIBCUDA, *SIM_DRIVER_SOURCES, *SIM_CORE_SOURCES),
        LIBNVIDIA_ML: _plain(LIBNVIDIA_ML, *SIM_NVML_SOURCES, *SIM_CORE_SOURCES),
        # Python's own symbols are found when Python loads it.
        NATIVE: _Part(native, ("-Wl,-z,relro", *(f"-l{name}" for name in (*LIBRARIES, "m")))),
    }
    return {target: every[target] for target in every if target in targets}


def _flags(file: str) -> list[str]:
    """Returns how a C file is compiled, by where it lies."""
    flags = [*COMPILE_ARGS, *(f"-I{each}" for each in INCLUDES)]
    if file == _NATIVE_SOURCE:
        # Generated, so it is not held to our warnings. A function of Python that our header lacks
        # would be taken to return an int.
        quiet = [each for each in flags if each not in ("-Wall", "-Wextra")]
        return [*quiet, "-Werror=implicit-function-declaration", f"-I{PYTHON_HEADERS}"]
    return [*flags, *(KEEP_FRAMES if file.startswith("libvgpu/sim/driver/") else [])]


def cffi_declarations(path: Path) -> str:
    """Returns the text of a header as cffi can parse it.

    Blocks under ``#ifndef VGPU_CFFI`` and all preprocessor lines but plain integer ``#define``
    are dropped; everything else goes in unchanged, so a header cannot drift from its cffi view.
    """
    text = re.sub(r"#ifndef VGPU_CFFI\n.*?\n#endif[^\n]*\n", "", path.read_text(), flags=re.S)
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    kept = []
    for line in text.splitlines():
        if line.startswith("#") and not re.match(r"#define \w+ -?(0x[0-9a-fA-F]+|\d+)\s*$", line):
            continue
        kept.append(line)
    return "\n".join(kept)


def _write_native_source() -> None:
    """Writes the C of ``libvgpu._native``, where a header, this file or cffi is another one."""
    try:
        import cffi
    except ImportError:
        raise VgpuError("cffi is not installed", hint="make setup installs it") from None
    target = ROOT / _NATIVE_SOURCE
    texts = [(ROOT / header).read_bytes() for header in CFFI_HEADERS]
    made_of = [cffi.__version__.encode(), Path(__file__).read_bytes(), *texts]
    digest, note = hashlib.sha256(b"\0".join(made_of)).hexdigest(), target.with_suffix(".of")
    if target.exists() and note.exists() and note.read_text() == digest:
        return
    ffi = cffi.FFI()
    for header in CFFI_HEADERS:
        ffi.cdef(cffi_declarations(ROOT / header))
    includes = "\n".join(
        f'#include "{h.removeprefix("libvgpu/src/") if "/src/" in h else Path(h).name}"'
        for h in CFFI_HEADERS
        if "/vgpu/" not in h
    )
    ffi.set_source("libvgpu._native", f'#include "vgpu/contract.h"\n{includes}\n')
    target.parent.mkdir(parents=True, exist_ok=True)
    ffi.emit_c_code(str(target))
    note.write_text(digest)


def build(
    targets: Collection[str] = TARGETS, into: Path = ROOT, *, strict: bool = False
) -> dict[str, Path]:
    """Builds targets, or what changed of them; returns the object of each source.

    Args:
        targets: of `TARGETS`.
        into: the folder below which `FILES` lie.
        strict: whether a warning is an error.

    Raises:
        VgpuError: this is another architecture, there is no compiler, something does not compile
            or link, or, if ``strict``, the compiler warned.
    """
    if platform.machine() != MACHINE:
        raise VgpuError(
            f"vgpu cannot be built for {platform.machine()!r}: only {MACHINE} is supported yet"
        )
    command = PORTABLE_COMPILER if is_portable() else find_compiler()
    compiler = Compiler((*command, "-fPIC"), ROOT, _OBJECTS)
    try:
        _OBJECTS.mkdir(parents=True, exist_ok=True)
        with open(_BUILD / ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two builds at once would write the same objects
            objects = _make(compiler, targets, into)
    except OSError as error:
        raise VgpuError(f"{error.filename or into} cannot be written: {error.strerror}") from error
    if strict and (said := said_of(objects)):
        raise VgpuError(f"the compiler warned:\n{said.strip()}")
    return objects


def _make(compiler: Compiler, targets: Collection[str], into: Path) -> dict[str, Path]:
    """Compiles and links targets; returns the object of each file."""
    if NATIVE in targets:
        _write_native_source()
    parts = _parts(targets)
    files = {file: _flags(file) for part in parts.values() for file in part.files}
    objects = compile_all(compiler, files)
    for target, part in parts.items():
        for file, script in _scripts(target).items():
            _link(compiler, into / file, part, objects, _exporting(script))
    return objects


def outputs(targets: Collection[str] = TARGETS) -> list[str]:
    """Returns the files of targets, as `FILES` names them."""
    return [file for each in targets for file in _scripts(each)]


def _link(
    compiler: Compiler, output: Path, part: _Part, objects: dict[str, Path], more: Sequence[str]
) -> None:
    # Without the debugger's data, in which zig names its own folder and its cache: a library and
    # its build id shall be the same from every machine.
    portable = ("-Wl,--strip-debug",) if is_portable() else ()
    link(compiler, output, [objects[file] for file in part.files], [*part.flags, *portable, *more])


def _exporting(script: str) -> list[str]:
    """Returns what makes the linker export what a script says."""
    if not script:
        return []
    # Named by its content, so that the command is another one where the script is.
    exports = _OBJECTS / f"{hashlib.sha256(script.encode()).hexdigest()[:16]}.map"
    exports.write_text(script)
    return [f"-Wl,--version-script={exports}"]


def build_library(output: Path, files: Sequence[str], *flags: str) -> None:
    """Compiles files of the checkout, with their usual flags and more, into one shared library.

    Raises:
        VgpuError: see `build`.
    """
    compiler = Compiler((*find_compiler(), "-fPIC"), ROOT, output.parent / "objects")
    compiler.objects.mkdir(parents=True, exist_ok=True)
    part = _Part(tuple(files), (*LINK_ARGS, *(f"-l{name}" for name in LIBRARIES)))
    objects = compile_all(compiler, {file: [*_flags(file), *flags] for file in files})
    _link(compiler, output, part, objects, ())


def main(arguments: Sequence[str]) -> None:
    """Builds the named targets, all of them without a name, in place."""
    strict = "--werror" in arguments
    targets = [each for each in arguments if each != "--werror"]
    for each in targets:
        if each not in TARGETS:
            raise VgpuError(f"unknown target {each!r}; there are: {', '.join(sorted(TARGETS))}")
    build(targets or TARGETS, strict=strict)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except VgpuError as error:
        hint = f"\nhint: {error.hint}" if error.hint else ""
        sys.exit(f"libvgpu: {error.message}{hint}")
