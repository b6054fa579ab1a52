"""`vgpuctl doctor` as typed, on a node of a test, with the tree that stands for the node's root."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import ROOT, warm
from .output_schemas import check
from .waiting import PATIENCE_S

Finding = dict[str, Any]


def doctor(
    base: Path,
    *options: str,
    env: Mapping[str, str] | None = None,
    prefix: tuple[str, ...] = (),
    state_dir: str = "s",
) -> list[Finding]:
    """Returns what it finds on the node below ``base``, held against its schema.

    Args:
        env: its environment; None: that of the test.
        prefix: of its command line.
    """
    words = [
        *("-m", "vgpuctl", "doctor", "-o", "json", f"--run-dir={base / 'r'}"),
        *(f"--state-dir={base / state_dir}", f"--kubelet-dir={base / 'k'}", *options),
    ]
    env = os.environ if env is None else env
    if prefix:
        done = subprocess.run(
            [*prefix, sys.executable, *words], cwd=ROOT, env=env, capture_output=True, text=True,
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    else:
        done = warm.run(words, env)
    assert done.returncode in (0, 1), done.stderr
    found = check("doctor", done.stdout)
    assert done.returncode == any(each["level"] == "fail" for each in found)
    for each in found:
        assert (each["fix"] == "") is (each["level"] == "ok"), each
    return found


def of(found: list[Finding], name: str) -> list[Finding]:
    """Returns the findings of one check."""
    return [each for each in found if each["check"] == name]


def put(tree: Path, name: str, text: str) -> None:
    """Writes one file of a tree."""
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
