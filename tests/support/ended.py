"""Programs that a test only waits for."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support.waiting import PATIENCE_S


def run_to_end(command: Sequence[str | Path], **options: Any) -> "subprocess.CompletedProcess[str]":
    """Returns how a program ended and what it said, after `PATIENCE_S` at the latest.

    Args:
        options: of `subprocess.run`, where they are to be others.
    """
    given = {"timeout": PATIENCE_S, "check": False, **options}
    ended: subprocess.CompletedProcess[str] = subprocess.run(
        command, capture_output=True, text=True, **given
    )
    return ended


def printed(
    *words: str | Path,
    env: Mapping[str, str] | None = None,
    told: str | None = None,
    cwd: Path | None = None,
) -> str:
    """Returns what a program printed that was told something and ended well."""
    ended = run_to_end(words, env=env, input=told, cwd=cwd)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
