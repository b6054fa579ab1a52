"""Builds ``libvgpu.so`` with a C compiler and nothing else: ``python3 -m libvgpu._build_shim``.

For a machine with a GPU and no packages, where `_build`, which needs setuptools and cffi, cannot
run. Both compile the same files with the same flags (`_sources`). Does nothing where the library
is newer than all that it is made of.
"""

import fcntl
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ._sources import (
    COMPILE_ARGS,
    INCLUDES,
    LIBRARIES,
    LINK_ARGS,
    MACHINE,
    ROOT,
    SHIM_SOURCES,
    headers,
    sources,
)
from .errors import VgpuError

_SHIM = ROOT / "libvgpu" / "libvgpu.so"
#: Of one file: two seconds are usual on a slow machine.
_COMPILE_TIMEOUT_SECONDS = 120


def find_compiler() -> list[str]:
    """Returns the command of the machine's C compiler: ``$CC``, ``cc`` or ``gcc``.

    Raises:
        VgpuError: there is none.
    """
    chosen = shlex.split(os.environ.get("CC", ""))
    if chosen:
        if shutil.which(chosen[0]) is None:
            raise VgpuError(f"CC is {chosen[0]!r}, which is not on PATH")
        return chosen
    for name in ("cc", "gcc"):
        if shutil.which(name) is not None:
            return [name]
    raise VgpuError("no C compiler (cc or gcc) on PATH", hint="apt install gcc libc6-dev")


def build_library(output: Path, files: Sequence[str], *flags: str) -> None:
    """Compiles files, as many at once as there are processors, into one shared library.

    Args:
        output: replaced as a whole, so that who has the former one mapped keeps it.
        files: C files, relative to the checkout.
        flags: for the compiler, beyond those of `_sources`.

    Raises:
        VgpuError: there is no compiler, it fails, this is another architecture, or the library
            cannot be written.
    """
    if platform.machine() != MACHINE:
        raise VgpuError(
            f"{output.name} cannot be built for {platform.machine()!r}: only {MACHINE} is "
            "supported yet"
        )
    compiler = find_compiler()
    with tempfile.TemporaryDirectory(prefix="vgpu-build-") as name:

        def compile_one(file: str) -> str:
            target = os.path.join(name, file.replace("/", "-") + ".o")
            _run([*compiler, *COMPILE_ARGS, *flags, "-fPIC", *(f"-I{each}" for each in INCLUDES),
                  "-c", file, "-o", target])  # fmt: skip
            return target

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compile_one, files))
        new = output.with_name(f".{output.name}.{os.getpid()}")
        try:
            _run([*compiler, "-shared", *objects, *LINK_ARGS, f"-Wl,-soname,{output.name}",
                  *(f"-l{each}" for each in LIBRARIES), "-o", str(new)])  # fmt: skip
            new.replace(output)
        except OSError as error:
            raise VgpuError(f"{output} cannot be written: {error.strerror}") from error
        finally:
            new.unlink(missing_ok=True)


def _run(command: Sequence[str]) -> None:
    result = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_SECONDS
    )
    if result.returncode != 0:
        raise VgpuError(f"{shlex.join(command)} failed: {result.stderr.strip()}")


def _newest_s(files: Iterable[str]) -> float:
    return max((ROOT / file).stat().st_mtime for file in files)


def build_shim() -> Path:
    """Returns the shim of this checkout, built where it is missing or older than what it is of.

    Raises:
        VgpuError: it is missing and so are its sources, or see `build_library`.
    """
    files = sources(*SHIM_SOURCES)
    if not files:
        raise VgpuError(f"there are no {' '.join(SHIM_SOURCES)} in {ROOT} to build the shim of")
    (ROOT / "build").mkdir(exist_ok=True)
    with open(ROOT / "build/.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as `_build` does
        made_of = [*files, *headers(), "libvgpu/_sources.py"]
        if not _SHIM.exists() or _SHIM.stat().st_mtime < _newest_s(made_of):
            print(f"building {_SHIM}", file=sys.stderr, flush=True)
            build_library(_SHIM, files)
    return _SHIM


if __name__ == "__main__":
    try:
        build_shim()
    except VgpuError as error:
        hint = f"\nhint: {error.hint}" if error.hint else ""
        sys.exit(f"libvgpu: {error.message}{hint}")
