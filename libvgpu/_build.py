"""Builds every native artefact of the project with setuptools and cffi.

Four targets, from the tables below:

==================  ==========================================  ===================================
target              file                                        made of
==================  ==========================================  ===================================
``shim``            ``libvgpu/libvgpu.so``                      ``src/*/*.c`` (plain C, no Python)
``libcuda``         ``libvgpu/sim/lib/libcuda.so.1``            ``sim/driver/*.c``, ``sim/core/*.c``
``libnvidia_ml``    ``libvgpu/sim/lib/libnvidia-ml.so.1``       ``sim/nvml/*.c``, ``sim/core/*.c``
``native``          ``libvgpu/_native.abi3.so``                 cffi over the shared headers,
                                                                ``arbiter/*.c``, ``placement/*.c``,
                                                                pure ``src/*/*.c``
==================  ==========================================  ===================================

A driver of an older CUDA lacks the newer entry points, so the objects of ``libcuda`` are linked
once more for each version of ``OLDER_DRIVERS``, into ``sim/lib/cuda-X.Y/``, with only the names
exported that ``src/hooks/hooks.def`` says were there. NVML is linked once more for each release in
``driver_releases.py`` that lacks some of its functions, into ``sim/lib/driver-NAME/``.

``pip install .`` runs them through ``build_ext`` (named in pyproject.toml);
``python -m libvgpu._build [TARGET...]`` rebuilds in place what changed.
``VGPU_PORTABLE=1`` (``make wheel``) compiles with zig against the symbols of glibc 2.17 instead of
with the machine's compiler, in a build folder of its own, and names the wheel accordingly.
``--werror`` rebuilds all C into a scratch folder with warnings as errors (``make lint``; a user's
compiler may warn about things ours does not, and must still be able to build).
"""

import fcntl
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cffi import FFI
from setuptools import Distribution, Extension
from setuptools.command.bdist_wheel import bdist_wheel as _bdist_wheel
from setuptools.command.build import build as _build
from setuptools.command.build_ext import build_ext as _build_ext

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    # setuptools loads this file by its path, before it is a package's. First, since an editable
    # install of another checkout may be on the path: what is built here is made of this one.
    sys.path.insert(0, str(ROOT))

from libvgpu import driver_releases  # noqa: E402
from libvgpu._sources import (  # noqa: E402
    ARBITER_SOURCES,
    COMPILE_ARGS,
    INCLUDES,
    LIBRARIES,
    LINK_ARGS,
    MACHINE,
    PLACEMENT_SOURCES,
    PURE_SHIM_SOURCES,
    SHIM_SOURCES,
    SIM_CORE_SOURCES,
    headers,
    sources,
)
from libvgpu.driver_releases import CUDA_VERSIONS, NEWEST_CUDA, RELEASES  # noqa: E402
from libvgpu.hook_table import TABLE, HookRow, read_hook_table  # noqa: E402

PACKAGE = Path("libvgpu")

# What cffi reads, in this order. Each file holds only what cffi's parser takes once the
# preprocessor lines are gone, apart from blocks under `#ifndef VGPU_CFFI`.
CFFI_HEADERS = [
    "libvgpu/include/vgpu/contract.h",
    "libvgpu/src/slice/checksum.h",
    "libvgpu/src/slice/limits_file.h",
    "libvgpu/src/slice/usage_file.h",
    "libvgpu/src/slice/ledger.h",
    "libvgpu/src/compute/virtual_time.h",
    "libvgpu/src/compute/utilisation.h",
    "libvgpu/arbiter/window_times.h",
    "libvgpu/arbiter/demand.h",
    "libvgpu/arbiter/policy.h",
    "libvgpu/arbiter/arbiter.h",
    "libvgpu/placement/fractions.h",
    "libvgpu/placement/json_count.h",
    "libvgpu/src/compute/wait_histogram.h",
    "libvgpu/src/compute/arrival.h",
    "libvgpu/src/compute/ration.h",
    "libvgpu/sim/core/machine_api.h",
]

# The simulated driver tells by its own frames which entry point was called (driver/handle.c).
KEEP_FRAMES = ["-fno-optimize-sibling-calls"]

# The shim is loaded into whatever image a container has; glibc 2.17 is CentOS 7's, and what pip
# calls manylinux2014. Only the linker's list of symbols is older: it runs on every newer glibc.
PORTABLE_COMPILER = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu.2.17"]
PORTABLE_PLATFORM = "manylinux2014_x86_64"
PORTABLE_BUILD_DIR = "build/portable"  # never next to objects of another compiler

FILES = {
    "libvgpu.shim": PACKAGE / "libvgpu.so",
    "libvgpu.sim.libcuda": PACKAGE / "sim/lib/libcuda.so.1",
    "libvgpu.sim.libnvidia_ml": PACKAGE / "sim/lib/libnvidia-ml.so.1",
    "libvgpu._native": PACKAGE / "_native.abi3.so",
}
#: Besides the newest one.
OLDER_DRIVERS = {words: number for words, number in CUDA_VERSIONS.items() if number != NEWEST_CUDA}
OLDER_FILES = {
    version: PACKAGE / f"sim/lib/cuda-{version}/libcuda.so.1" for version in OLDER_DRIVERS
}
#: NVML of the releases that lack functions of it, by their names.
LACKING_FILES = {
    name: PACKAGE / f"sim/lib/driver-{name}/libnvidia-ml.so.1"
    for name, release in RELEASES.items()
    if release.lacks
}


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


def _plain(name: str, files: list[str], soname: str, *compile_more: str) -> Extension:
    return Extension(
        name,
        sources=files,
        include_dirs=INCLUDES,
        depends=headers(),
        libraries=LIBRARIES,
        extra_compile_args=[*COMPILE_ARGS, *compile_more],
        extra_link_args=[*LINK_ARGS, f"-Wl,-soname,{soname}"],
    )


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


def ffi_builder() -> FFI:
    """Returns the cffi builder of ``libvgpu._native``, whose pure C it compiles in."""
    ffi = FFI()
    found = [h for h in CFFI_HEADERS if (ROOT / h).exists()]
    for header in found:
        ffi.cdef(cffi_declarations(ROOT / header))
    includes = "\n".join(
        f'#include "{h.removeprefix("libvgpu/src/") if "/src/" in h else Path(h).name}"'
        for h in found
        if "/vgpu/" not in h
    )
    ffi.set_source(
        "libvgpu._native",
        f'#include "vgpu/contract.h"\n{includes}\n',
        sources=[
            s
            for s in [
                *PURE_SHIM_SOURCES,
                *sources(*ARBITER_SOURCES, *PLACEMENT_SOURCES, *SIM_CORE_SOURCES),
            ]
            if (ROOT / s).exists()
        ],
        include_dirs=INCLUDES,
        depends=headers(),
        extra_compile_args=[
            *("-std=gnu11", "-D_GNU_SOURCE", "-O2", "-fno-strict-aliasing"),
            f"-ffile-prefix-map={ROOT}=.",  # as for the others: the same bytes in every folder
        ],
        libraries=[*LIBRARIES, "m"],
        py_limited_api=True,
    )
    return ffi


def extensions() -> list[Extension]:
    """Returns the targets whose sources exist, in build order."""
    return [
        _plain("libvgpu.shim", sources(*SHIM_SOURCES), "libvgpu.so"),
        _plain(
            "libvgpu.sim.libcuda",
            sources("libvgpu/sim/driver/*.c", *SIM_CORE_SOURCES),
            "libcuda.so.1",
            *KEEP_FRAMES,
        ),
        _plain(
            "libvgpu.sim.libnvidia_ml",
            sources("libvgpu/sim/nvml/*.c", *SIM_CORE_SOURCES),
            "libnvidia-ml.so.1",
        ),
    ]


class build(_build):  # noqa: N801 - setuptools looks the command up by this name
    """setuptools' build, portable ones in a folder of their own."""

    def initialize_options(self) -> None:
        super().initialize_options()
        if is_portable():
            self.build_base = PORTABLE_BUILD_DIR


class bdist_wheel(_bdist_wheel):  # noqa: N801 - as above
    """setuptools' bdist_wheel, which would call a portable wheel one for this machine's Linux."""

    def finalize_options(self) -> None:
        if is_portable():
            self.plat_name = PORTABLE_PLATFORM
        super().finalize_options()


class build_ext(_build_ext):  # noqa: N801 - setuptools looks the command up by this name
    """setuptools' build_ext over the table above instead of pyproject's placeholder."""

    only: tuple[str, ...] = ()

    def finalize_options(self) -> None:
        if platform.machine() != MACHINE:
            raise SystemExit(
                f"vgpu cannot be built for {platform.machine()!r}: only {MACHINE} is supported yet"
            )
        os.chdir(ROOT)
        super().finalize_options()
        # setuptools annotates and renames extensions while it finalizes; ours are plain files.
        native = ffi_builder().distutils_extension(tmpdir=os.path.join("build", "cffi"))
        native.name = "libvgpu._native"
        native.py_limited_api = True  # type: ignore[attr-defined]
        chosen = [*extensions(), native]
        if self.only:
            chosen = [e for e in chosen if e.name.rsplit(".", 1)[-1].strip("_") in self.only]
        self.extensions = chosen
        self.distribution.ext_modules = chosen
        for extension in chosen:
            extension._full_name = extension.name  # type: ignore[attr-defined]
            extension._links_to_dynamic = False  # type: ignore[attr-defined]
            extension._needs_stub = False  # type: ignore[attr-defined]
        self.ext_map = {e.name: e for e in chosen}

    def build_extensions(self) -> None:
        if is_portable():
            # Nothing of Python's own flags comes along: they hold paths of this machine.
            self.compiler.set_executables(
                compiler_so=[*PORTABLE_COMPILER, "-fPIC"],
                # Without the debugger's data, in which zig names its own folder and its cache: a
                # library and its build id shall be the same from every machine.
                linker_so=[*PORTABLE_COMPILER, "-shared", "-Wl,--strip-debug"],
            )
            self.compiler.set_library_dirs([])
            for extension in self.extensions:
                # Debian keeps half of Python's headers where only its own compilers look.
                if extension.name == "libvgpu._native":
                    extension.extra_compile_args += ["-idirafter", "/usr/include"]
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        # Objects of one source differ between targets (flags), so each target has its own folder.
        shared_temp, self.build_temp = self.build_temp, os.path.join(self.build_temp, ext.name)
        try:
            super().build_extension(ext)
            if ext.name == "libvgpu.sim.libcuda":
                rows = read_hook_table()
                for version, file in OLDER_FILES.items():
                    self._link_again(ext, file, version_script(rows, OLDER_DRIVERS[version]))
            elif ext.name == "libvgpu.sim.libnvidia_ml":
                for name, file in LACKING_FILES.items():
                    self._link_again(ext, file, lacking_script(RELEASES[name].lacks))
        finally:
            self.build_temp = shared_temp

    def _link_again(self, ext: Extension, file: Path, script: str) -> None:
        """Links the objects of ``ext`` once more, into a library that exports less."""
        compiler: Any = self.compiler
        objects = compiler.object_filenames(ext.sources, output_dir=self.build_temp)
        made_of = [*objects, str(TABLE), driver_releases.__file__, __file__]
        newest_s = max(os.path.getmtime(path) for path in made_of)
        target = Path(self.build_lib) / file
        if not self.force and target.exists() and target.stat().st_mtime > newest_s:
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        exports = Path(self.build_temp) / f"{target.parent.name}.map"
        exports.write_text(script)
        compiler.link_shared_object(
            objects,
            str(target),
            libraries=LIBRARIES,
            build_temp=self.build_temp,
            extra_postargs=[*ext.extra_link_args, f"-Wl,--version-script={exports}"],
        )

    def get_ext_filename(self, fullname: str) -> str:
        return str(FILES[fullname])

    def get_ext_fullpath(self, ext_name: str) -> str:
        base = ROOT if self.inplace else Path(self.build_lib)
        path = base / FILES[ext_name]
        path.parent.mkdir(parents=True, exist_ok=True)
        return str(path)

    def copy_extensions_to_source(self) -> None:
        for file in self._built_files():
            target = ROOT / file
            target.parent.mkdir(parents=True, exist_ok=True)
            built = Path(self.build_lib) / file
            if built.resolve() != target:
                self.copy_file(str(built), str(target))

    def get_outputs(self) -> list[str]:
        return [str(Path(self.build_lib) / file) for file in self._built_files()]

    def _built_files(self) -> list[Path]:
        files = [FILES[extension.name] for extension in self.extensions]
        if FILES["libvgpu.sim.libcuda"] in files:
            files += OLDER_FILES.values()
        if FILES["libvgpu.sim.libnvidia_ml"] in files:
            files += LACKING_FILES.values()
        return files


def main(targets: list[str]) -> None:
    """Builds the named targets (all of them without a name) in place, what changed only."""
    os.chdir(ROOT)
    (ROOT / "build").mkdir(exist_ok=True)
    known = {name.rsplit(".", 1)[-1].strip("_") for name in FILES}
    unknown = sorted(set(targets) - known)
    if unknown:
        raise SystemExit(f"unknown target {unknown[0]!r}; there are: {', '.join(sorted(known))}")
    with open(ROOT / "build/.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two builds at once would share object files
        distribution = Distribution({"name": "vgpu", "script_name": "_build"})
        command: Any = build_ext(distribution)
        command.only = tuple(targets)
        command.inplace = True
        command.verbose = 0
        command.ensure_finalized()
        command.run()


def check_warnings() -> None:
    """Compiles every C source with warnings as errors, keeping nothing.

    Raises:
        subprocess.CalledProcessError: the compiler has said why on stderr.
    """
    compiler = os.environ.get("CC", "cc").split()
    with tempfile.TemporaryDirectory() as scratch:
        for source in sources(
            *SHIM_SOURCES, *ARBITER_SOURCES, *PLACEMENT_SOURCES, "libvgpu/sim/*/*.c"
        ):
            subprocess.run(
                [*compiler, *COMPILE_ARGS, "-fPIC", "-Werror", *(f"-I{i}" for i in INCLUDES),
                 "-c", source, "-o", os.path.join(scratch, "object.o")],
                cwd=ROOT, check=True,
            )  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:] == ["--werror"]:
        check_warnings()
    else:
        main(sys.argv[1:])
