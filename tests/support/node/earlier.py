"""The version before this one, built: its agent, its MPS runner and its shim.

That is the last release's tag. Before the first release it is the commit that began to collect the
changes since: it still writes files of layout version 1.
"""

import fcntl
import io
import os
import shutil
import subprocess
import sys
import tarfile
from functools import cache
from pathlib import Path

import pytest

from support import ROOT
from support.waiting import PATIENCE_S

_BEFORE_RELEASES = "cfe9a546b68e8cb57784524c3754edf6212b863d"
_FOLDERS = ("libvgpu", "deviceplugin", "vgpuctl", "pyproject.toml")


def _git(*words: str) -> bytes:
    """Returns what git says; nothing where it fails, or there is none."""
    if shutil.which("git") is None:
        return b""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else b""


@cache
def earlier_version() -> Path:
    """Returns its checkout; skips the test in a clone that does not have it."""
    tag = _git("describe", "--tags", "--abbrev=0", "--match=v*", "HEAD^").decode().strip()
    commit = _git("rev-parse", f"{tag or _BEFORE_RELEASES}^{{commit}}").decode().strip()
    root = ROOT / "build/earlier" / commit
    if not (files := commit and _git("archive", commit, *_FOLDERS)):
        pytest.skip("this clone lacks the version before this one (git fetch --unshallow --tags)")
    root.mkdir(parents=True, exist_ok=True)
    with open(root.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other workers want it, too
        if not (root / "pyproject.toml").exists():
            with tarfile.open(fileobj=io.BytesIO(files)) as archive:
                archive.extractall(root, filter="data")
        command = [sys.executable, "-m", "libvgpu._build", "shim", "native"]
        environment = {**os.environ, "PYTHONPATH": str(root)}
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode == 0, done.stderr
    return root
