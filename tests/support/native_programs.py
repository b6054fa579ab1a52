"""C programs of the tests, compiled once a source for all workers and runs of a checkout.

What was built lies in ``build/native/<of what tree>/``; the name of a file there tells by what
command and from which text. The tree is all text that a program may include, so a change anywhere
in it builds again. One lock a program keeps workers from compiling the same at a time.
"""

import fcntl
import functools
import hashlib
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from . import ROOT
from .waiting import PATIENCE_S

#: Another run may still use what it built from a source that has changed since.
KEPT_SECONDS = 24 * 3600.0
_FOLDER = ROOT / "build" / "native"
_INCLUDED = ("libvgpu/include", "libvgpu/src", "libvgpu/sim", "tests/native", "tests/model")
_SUFFIXES = {".c", ".h", ".def", ".S", ".map"}


def shim_files(*names: str) -> tuple[str, ...]:
    """Returns C files of the shim by their stems, wherever they lie in it."""
    found = {path.stem: str(path.relative_to(ROOT)) for path in (ROOT / "libvgpu/src").rglob("*.c")}
    return tuple(found[name] for name in names)


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:16]


@functools.cache
def _tree() -> Path:
    """Returns the folder of programs built from the source as it is, those of older ones gone."""
    files = sorted(
        file
        for folder in _INCLUDED
        for file in (ROOT / folder).rglob("*")
        if file.suffix in _SUFFIXES
    )
    tree = _FOLDER / _digest(
        part for file in files for part in (str(file.relative_to(ROOT)).encode(), file.read_bytes())
    )
    tree.mkdir(parents=True, exist_ok=True)
    for other in _FOLDER.iterdir():
        if other != tree and time.time() - other.stat().st_mtime > KEPT_SECONDS:
            shutil.rmtree(other, ignore_errors=True)
    return tree


@functools.cache
def _version(compiler: str) -> bytes:
    return subprocess.run([compiler, "--version"], capture_output=True, check=True).stdout


def build(compiler: str, source: str, *more: str, flags: tuple[str, ...] = ()) -> Path:
    """Returns a built program.

    Args:
        compiler: its path.
        source: below ``tests/native``.
        more: further sources, relative to the checkout; or elsewhere, and then their text counts.
        flags: of the compiler.

    Raises:
        CalledProcessError: it does not compile, and the compiler has said why.
    """
    command = [
        *(compiler, "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra"),
        *("-Ilibvgpu/include", "-Ilibvgpu/src", "-Ilibvgpu/sim/core"),
        *(f"tests/native/{source}", *more, *flags),
    ]
    elsewhere = [Path(each) for each in more if Path(each).is_absolute()]
    words = [word for word in command if Path(word) not in elsewhere]
    texts = [file.read_bytes() for file in elsewhere]
    digest = _digest([_version(compiler), *map(str.encode, words), *texts])
    program = _tree() / f"{Path(source).stem}-{digest}"
    if program.exists():
        return program
    with Path(f"{program}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            new = Path(f"{program}.new")
            subprocess.run(
                [*command, "-o", str(new), "-ldl", "-lpthread"],
                cwd=ROOT, check=True, timeout=PATIENCE_S,
            )  # fmt: skip
            new.rename(program)
    return program
