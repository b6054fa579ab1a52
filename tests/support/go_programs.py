"""Go programs of the tests: whether they can be built here, and building them once a source."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
    with _lock(name):
        program = _kept(name, digest.hexdigest())
        if not program.exists():
            draft = Path(f"{program}.new")
            _compile(module, package, draft)
            draft.rename(program)
    return program


def build_together(module: Path, name: str, packages: Mapping[str, str]) -> Path:
    """Returns a folder with several programs of one module, as `build` does with one.

    Args:
        module: folder with its go.mod.
        name: of the folder below build/ that has that folder.
        packages: which ones, each with the linker's flags for it; one of ``module`` itself begins
            with ``./``. Each program is called as its package's last folder.

    Raises:
        AssertionError: they do not build, with what the compiler says.
    """
    digest = hashlib.sha256(repr(sorted(packages.items())).encode())
    own = [module / package for package in packages if package.startswith("./")]
    sources = [source for folder in own for source in sorted(folder.glob("*.go"))]
    for file in (module / "go.mod", module / "go.sum", *sources):
        digest.update(file.read_bytes())
    with _lock(name):
        made = _kept(name, digest.hexdigest())
        if not made.exists():
            draft = made.with_suffix(".new")
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            for package, flags in packages.items():
                _compile(module, package, draft / package.rpartition("/")[2], flags)
            draft.rename(made)
    return made


def kubernetes_version(version: str) -> str:
    """Returns the linker's flags by which a part of Kubernetes knows its version: without it one
    misbehaves.

    Args:
        version: as its module has it, with the v.
    """
    major, minor, _ = version.removeprefix("v").split(".")
    said = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return " ".join(
        f"-X {package}.{name}={value}"
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        for name, value in said.items()
    )


@contextmanager
def _lock(name: str) -> Iterator[None]:
    """Other workers of a test run may want the same program: the first builds it."""
    folder = ROOT / "build"
    folder.mkdir(exist_ok=True)
    with open(folder / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _kept(name: str, digest: str) -> Path:
    """Returns where what is made of one source is kept; what is made of others is removed."""
    folder = ROOT / "build" / name
    made = folder / digest[:16]
    if not made.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    return made


def _compile(module: Path, package: str, program: Path, flags: str = "") -> None:
    # No C compiler, no debugger's tables: two thirds of the time and of the size. One set of
    # options for all, so that Go compiles what several programs have in common once.
    result = subprocess.run(
        ["go", "build", "-trimpath", "-buildvcs=false", f"-ldflags=-s -w {flags}".rstrip(),
         "-o", str(program), package],
        cwd=module, env={**os.environ, "CGO_ENABLED": "0"},
        capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
