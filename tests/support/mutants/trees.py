"""Copies of the checkout in which a mutant is built and tested.

A copy has what git has, changes that are not committed as well, and builds its own libraries: once,
and then what a mutant changes. Objects stay from run to run in ``build/mutants``.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

from support import ROOT

from .operators import Mutant

_FOLDER = ROOT / "build/mutants"
_BUILD_TIMEOUT_S = 900


@dataclass(frozen=True)
class Verdict:
    """How a mutant fared.

    Attributes:
        by: the test that failed, or how else it ended; empty for one that survived.
        compiles: else it counts for nothing.
    """

    by: str = ""
    compiles: bool = True


class TestsError(Exception):
    """The tests fail without any mutant, or there are none."""


class Tree:
    """One copy; a caller tries one mutant at a time."""

    def __init__(self, number: int) -> None:
        self.root = _FOLDER / str(number)
        self._seconds_back = count(1)

    def refresh(self) -> None:
        """Makes it what the checkout is now, built."""
        self.root.mkdir(parents=True, exist_ok=True)
        for each in self.root.iterdir():
            if each.name != "build":
                shutil.rmtree(each) if each.is_dir() else each.unlink()
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout
        for name in filter(None, names.decode().split("\0")):
            if (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
        built = self._run(["-m", "libvgpu._build"], _BUILD_TIMEOUT_S)
        if built.returncode:
            raise TestsError(f"{self.root} does not build: {built.stderr}")

    def test(self, tests: Sequence[str], timeout_s: float) -> str:
        """Runs tests up to the first that fails; returns its name, or how they ended."""
        pytest = ["-m", "pytest", "-x", "-q", "-mnot long and not timing"]
        done = self._run([*pytest, *tests], timeout_s)
        if done.returncode == 0:
            return ""
        if done.returncode == 5:
            raise TestsError(f"there are no tests: {' '.join(tests)}")
        failed = [line for line in done.stdout.splitlines() if line[:6] in ("FAILED", "ERROR ")]
        return failed[0] if failed else (done.stdout + done.stderr).strip()[-300:] or "no end"

    def attempt(self, mutant: Mutant, tests: Sequence[str], timeout_s: float) -> Verdict:
        """Tries a mutant and puts its file back."""
        path = self.root / mutant.file
        before = path.stat()
        path.write_bytes(mutant.text)
        # A time that no mutant had: bytecode and objects are told by time and size.
        at_ns = before.st_mtime_ns - next(self._seconds_back) * 10**9
        os.utime(path, ns=(at_ns, at_ns))
        try:
            if mutant.file.endswith(".c"):
                # A warning fails in `make lint`: nobody could leave such a mutant in the tree.
                built = self._run(
                    ["-m", "libvgpu._build", "shim", "native", "--werror"], _BUILD_TIMEOUT_S
                )
                if built.returncode:
                    return Verdict(compiles=False)
            return Verdict(self.test(tests, timeout_s))
        finally:
            path.write_bytes(mutant.original)
            os.utime(path, ns=(before.st_mtime_ns, before.st_mtime_ns))

    def _run(self, arguments: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(self.root), "VGPU_RANDOM": "0"}
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            out, err = "", ""
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)
