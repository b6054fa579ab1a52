"""C programs of the tests, compiled once a source for all workers and runs of a checkout.

What was built lies in ``build/native/<of what tree>/``; the name of a file there tells by what
command and from which text. The tree is all text that a program may include, so a change anywhere
in it builds again. Programs share the objects of sources that they have in common. One lock a file
keeps workers from compiling the same at a time.
"""

import fcntl
import functools
import hashlib
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from support import ROOT
from support.waiting import PATIENCE_S

#: Another run may still use what it built from a source that has changed since.
KEPT_SECONDS = 24 * 3600.0
_FOLDER = ROOT / "build" / "native"
_INCLUDED = (
    *("libvgpu/include", "libvgpu/src", "libvgpu/sim", "libvgpu/arbiter", "libvgpu/placement"),
    *("tests/native", "tests/model", "tests/fuzz/c"),
)
_SUFFIXES = {".c", ".h", ".def", ".S", ".map"}
_ALWAYS = ("-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g1", "-Wall", "-Wextra",
           "-Ilibvgpu/include", "-Ilibvgpu/src", "-Ilibvgpu/sim/core")  # fmt: skip
_OF_LINKER = ("-Wl,", "-l", "-L", "-shared")


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
            What is no source is the linker's, in its place.
        flags: of the compiler and the linker.

    Raises:
        CalledProcessError: it does not compile, and the compiler has said why.
    """
    of_linker = [flag for flag in flags if flag.startswith(_OF_LINKER)]
    command = [compiler, *_ALWAYS, *(flag for flag in flags if flag not in of_linker)]
    parts = [
        str(_make([*command, "-c", part], suffix=".o")) if part.endswith(".c") else part
        for part in (f"tests/native/{source}", *more)
    ]
    return _make([*command, *parts, *of_linker, "-ldl", "-lpthread"], name=Path(source).stem)


def _make(command: list[str], name: str = "", suffix: str = "") -> Path:
    """Returns what a command of the compiler makes, named by the command and by files it takes."""
    files = [Path(word) for word in command[1:] if Path(word).is_absolute()]
    words = [word for word in command if Path(word) not in files]
    texts = [file.name.encode() if file.parent == _tree() else file.read_bytes() for file in files]
    digest = _digest([_version(command[0]), *map(str.encode, words), *texts])
    target = _tree() / f"{name or Path(command[-1]).stem}-{digest}{suffix}"
    if target.exists():
        return target
    with Path(f"{target}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            new = Path(f"{target}.new")
            subprocess.run([*command, "-o", str(new)], cwd=ROOT, check=True, timeout=PATIENCE_S)
            new.rename(target)
    return target
