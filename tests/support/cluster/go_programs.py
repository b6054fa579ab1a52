"""Go programs of the tests: whether they can be had here, and building them once for a machine.

They are kept in ``build/cache``, or where ``VGPU_CACHE`` says: several checkouts and the runs of a
CI may share that folder. What they are made of names them, so there is nothing to bring up to date.
"""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support import ROOT
from support.cluster import go_modules, go_pins

#: Compiling Kubernetes' packages from nothing next to other tests, and fetching them before.
BUILD_TIMEOUT_S = 1500.0
DOWNLOAD_TIMEOUT_S = 600.0
#: Of each name the ones used last are kept: checkouts that share the folder may differ.
MOST_KEPT = 2
_SOURCES = {".mod", ".sum", ".go", ".s"}
# No C compiler, no debugger's tables: two thirds of the time and of the size. One set of options
# for all, so that Go compiles what several programs have in common once.
_OPTIONS = ("-trimpath", "-buildvcs=false")
_ENVIRONMENT = {"CGO_ENABLED": "0", "GOWORK": "off"}


def cache() -> Path:
    """Returns the folder of what is built once."""
    return Path(os.environ.get("VGPU_CACHE") or ROOT / "build/cache")


@dataclass(frozen=True)
class GoPrograms:
    """Some programs that are compiled and linked together.

    Attributes:
        name: by which they are kept.
        what: they are, as a sentence names it.
        packages: theirs; ``./one`` lies in the module. Each program is called as its package's
            last folder.
        flags: of the linker.
        module: folder with the go.mod and go.sum that pin what they are made of (`go_pins`).
        release: of that go.mod's modules the only one that counts; by default all do.
    """

    name: str
    what: str
    packages: tuple[str, ...]
    flags: str = ""
    module: Path = ROOT / "tests/e2e"
    release: str = ""

    def missing(self) -> str:
        """Returns as a sentence what keeps them from being had, empty if nothing does.

        Raises:
            AssertionError: go.mod or go.sum lacks a module, or pins another content.
        """
        if self._made().exists():
            return ""
        if shutil.which("go") is None:
            return f"no Go compiler: {self.what} cannot be built"
        try:
            with self._pins() as pins:
                got = subprocess.run(
                    ["go", "list", *pins, "-deps", *self.packages],
                    cwd=self.module,
                    env={**os.environ, **_ENVIRONMENT},
                    capture_output=True,
                    text=True,
                    timeout=DOWNLOAD_TIMEOUT_S,
                    check=False,
                )
        except go_modules.NotHere as error:
            return str(error)
        except subprocess.TimeoutExpired:
            return f"the modules of {self.what} did not come within {DOWNLOAD_TIMEOUT_S:.0f} s"
        assert not any(file in got.stderr for file in ("go.mod", "go.sum")), got.stderr
        if got.returncode:
            return f"the modules of {self.what} cannot be had: {got.stderr[-300:]}"
        return ""

    def build(self) -> Path:
        """Returns the folder with the programs, which are built if they are not there.

        Raises:
            AssertionError: they do not build, with what the compiler says.
        """
        made = self._made()
        with _lock(made.parent / f"{self.name}.lock"):
            if not made.exists():
                draft = Path(f"{made}.new")  # an interrupted build leaves nothing else
                shutil.rmtree(draft, ignore_errors=True)
                draft.mkdir()
                self._compile(draft)
                draft.rename(made)
                self._remove_oldest()
            os.utime(made)
        return made

    def _made(self) -> Path:
        given = (platform.machine(), *_OPTIONS, self.flags, self.release, *sorted(self.packages))
        digest = hashlib.sha256(repr(given).encode())
        own = [self.module / name for name in self.packages if name.startswith(".")]
        for file in sorted(file for folder in (self.module, *own) for file in folder.iterdir()):
            if file.suffix in _SOURCES:
                digest.update(file.name.encode() + file.read_bytes())
        return cache() / "go" / f"{self.name}@{digest.hexdigest()[:16]}"

    @contextmanager
    def _pins(self) -> Iterator[list[str]]:
        """Gives the options by which Go finds the pins."""
        with tempfile.TemporaryDirectory() as folder:
            file = go_pins.write(self.module, self.release, Path(folder))
            yield [f"-modfile={file}", "-mod=readonly"]

    def _compile(self, folder: Path) -> None:
        with self._pins() as pins:
            result = subprocess.run(
                ["go", "build", *pins, *_OPTIONS, f"-ldflags=-s -w {self.flags}".rstrip(),
                 "-o", f"{folder}/", *self.packages],
                cwd=self.module, env={**os.environ, **_ENVIRONMENT},
                capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False,
            )  # fmt: skip
        assert result.returncode == 0, result.stderr

    def _remove_oldest(self) -> None:
        made = sorted(self._made().parent.glob(f"{self.name}@*"), key=lambda m: m.stat().st_mtime)
        for old in made[:-MOST_KEPT]:
            shutil.rmtree(old)


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
def _lock(file: Path) -> Iterator[None]:
    """Other workers of a test run may want the same program: the first builds it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
