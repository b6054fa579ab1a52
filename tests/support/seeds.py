"""The seeds of random lives: the same in every run of a commit, and some new ones with each commit.

``VGPU_SEED=N`` lives the life of that seed alone.
"""

import os
import subprocess

from support import IS_LONG, ROOT

FIXED = 6000 if IS_LONG else 300
OF_COMMIT = 2000 if IS_LONG else 100
_NO_COMMIT = "0" * 40  # what is no checkout of git has these


def _commit() -> str:
    try:
        command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return _NO_COMMIT


def seeds(share: int, of: int) -> tuple[list[int], list[int]]:
    """Returns the fixed seeds and the commit's, of those that several tests divide among them.

    Args:
        share: which part of them, from 0.
        of: how many parts there are.
    """
    if only := os.environ.get("VGPU_SEED"):
        return [], [int(only)]
    first = int(_commit()[:12], 16)
    commits = range(first, first + OF_COMMIT)
    return list(range(FIXED))[share::of], list(commits)[share::of]


def how_to_repeat(seed: int, test: str) -> str:
    """Returns the command that lives one life again.

    Args:
        test: pytest's name of it.
    """
    return f"repeat it with: VGPU_SEED={seed} .venv/bin/python -m pytest -n0 '{test}'"
