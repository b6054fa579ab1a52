"""`vgpuctl` as a user types it, with all its directories below one folder."""

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

from support import CLIENT_PATH, warm


class UserHome:
    """One user's home.

    Attributes:
        run_dir: where the user's slices are.
        environment: all that the user's programs have.
    """

    def __init__(self, home: Path) -> None:
        self.run_dir = home / "run"
        (home / "runtime").mkdir(mode=0o700)
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "XDG_RUNTIME_DIR": str(home / "runtime"),
            "VGPU_RUN_DIR": str(self.run_dir),
            "PYTHONPATH": CLIENT_PATH,
        }

    def vgpuctl(self, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Runs one command line, with more variables."""
        return warm.run(["-m", "vgpuctl", *words], self.environment | variables)

    def start(self, *words: str, stderr: IO[str] | int | None = None) -> "subprocess.Popen[str]":
        """Starts one command line, with pipes for its input and output.

        In a group of its own: the kernel does not stop an orphaned one, which ours may be.
        """
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, "-m", "vgpuctl", *words],
            env=self.environment, stdin=pipe, stdout=pipe, stderr=stderr, text=True,
            process_group=0,
        )  # fmt: skip
