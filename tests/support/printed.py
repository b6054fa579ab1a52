"""Running a program to its good end."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from support.waiting import PATIENCE_S


def printed(
    *words: str | Path,
    env: Mapping[str, str] | None = None,
    told: str | None = None,
    cwd: Path | None = None,
) -> str:
    """Returns what a program printed that was told something and ended well."""
    done = subprocess.run(
        words,
        env=env,
        input=told,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
