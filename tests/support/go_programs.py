"""Go programs of the tests: whether they can be built here, and building them once a source."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from . import ROOT

#: Compiling Kubernetes' packages from nothing next to other tests, and fetching them before.
BUILD_TIMEOUT_S = 1500.0
DOWNLOAD_TIMEOUT_S = 600.0


def missing(module: Path, what: str) -> str:
    """Returns as a sentence what keeps a module from being built, empty if nothing does.

    Args:
        module: folder with its go.mod.
        what: what cannot be built then, as the sentence names it.
    """
    if shutil.which("go") is None:
        return f"no Go compiler: {what} cannot be built"
    try:
        got = subprocess.run(
            ["go", "mod", "download"],
            cwd=module,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"the modules of {what} did not come within {DOWNLOAD_TIMEOUT_S:.0f} s"
    if got.returncode:
        return f"the modules of {what} cannot be had: {got.stderr[-300:]}"
    return ""


def build(module: Path, name: str, package: str = ".") -> Path:
    """Returns a built program, from ``build/<name>`` if its source has not changed.

    Args:
        module: folder with its go.mod, and with the source of package ``.``.
        name: of its folder below build/.
        package: which one; of another module of go.mod it is what go.sum pins.

    Raises:
        AssertionError: it does not build, with what the compiler says.
    """
    suffixes = {".mod", ".sum"} | ({".go", ".s"} if package == "." else set())
    digest = hashlib.sha256(package.encode())
    for file in sorted(module.iterdir()):
        if file.suffix in suffixes:
            digest.update(file.name.encode() + file.read_bytes())
    folder = ROOT / "build" / name
    program = folder / digest.hexdigest()[:16]
    folder.parent.mkdir(exist_ok=True)
    # Other workers of a test run may want the same program: the first builds it.
    with open(folder.parent / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _build(module, folder, program, package)
    return program


def _build(module: Path, folder: Path, program: Path, package: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # of an older source
    folder.mkdir()
    # No C compiler, no debugger's tables: two thirds of the time and of the size.
    command = ["go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o"]
    result = subprocess.run(
        [*command, f"{program}.new", package],
        cwd=module,
        env={**os.environ, "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    Path(f"{program}.new").rename(program)
