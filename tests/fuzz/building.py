"""Targets in C as programs: guided by libFuzzer, or to run single inputs."""

import functools
import shutil
import subprocess
from pathlib import Path

from fuzz.targets import C_INCLUDES, Target
from support.shim.native_programs import build

#: The first that has libFuzzer is taken.
_CLANGS = ("clang", *(f"clang-{number}" for number in range(23, 13, -1)))
_SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
_COMMON = (
    "-fno-strict-aliasing",
    "-Wno-unused-parameter",
    *(f"-I{folder}" for folder in C_INCLUDES),
)
_MAIN = "tests/fuzz/c/replay.c"


@functools.cache
def clang() -> str | None:
    """Returns a clang with libFuzzer, None where there is none."""
    for name in _CLANGS:
        found = shutil.which(name)
        if found is None:
            continue
        asked = [found, "-print-resource-dir"]
        said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
        if said and any(Path(said).rglob("libclang_rt.fuzzer*.a")):
            return found
    return None


def guided(target: Target) -> Path:
    """Returns the program that looks for inputs."""
    compiler = clang()
    assert compiler is not None
    # Unoptimised: else conditions that are joined into one jump are no edges that it could follow.
    return _built(compiler, target, "-O0", "-fsanitize=fuzzer,address,undefined", _SANITIZED[1])


def replaying(target: Target) -> Path:
    """Returns a program that runs single inputs, where there is no libFuzzer."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler is not None
    return _built(compiler, target, "-O1", *_SANITIZED, main=True)


def covered(target: Target) -> Path:
    """Returns one that notes which branches inputs reach, of clang."""
    compiler = clang()
    assert compiler is not None
    return _built(compiler, target, "-fprofile-instr-generate", "-fcoverage-mapping", main=True)


def _built(compiler: str, target: Target, *flags: str, main: bool = False) -> Path:
    more = (*target.linked, *((_MAIN,) if main else ()))
    return build(compiler, f"../fuzz/c/{target.name}.c", *more, flags=(*flags, *_COMMON))


def tool(name: str) -> str:
    """Returns a tool of LLVM that belongs to `clang`."""
    compiler = clang()
    assert compiler is not None
    return str(Path(compiler).resolve().parent / name)
