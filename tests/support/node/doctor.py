"""`vgpuctl doctor` as typed, on a node of a test, with the tree that stands for the node's root."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support import warm
from support.output_schemas import check

Finding = dict[str, Any]
_CLONE_NEWNS = 0x20000
#: `vgpuctl` behind the mount of a file system that nobody else sees.
_MOUNTING = f"""
import ctypes, subprocess, sys
from vgpuctl.__main__ import main
options, place, *words = sys.argv[1:]
assert ctypes.CDLL(None).unshare({_CLONE_NEWNS}) == 0
subprocess.run(["mount", "--make-rprivate", "/"], check=True)
subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", place], check=True)
sys.exit(main(words))
"""


def doctor(
    base: Path,
    *options: str,
    env: Mapping[str, str] | None = None,
    mounting: str = "",
    state_dir: str = "s",
) -> list[Finding]:
    """Returns what it finds on the node below ``base``, held against its schema.

    Args:
        env: its environment; None: that of the test.
        mounting: options of a file system in memory that it has as its state directory.
    """
    program = ["-m", "vgpuctl"]
    if mounting:
        program = ["-c", _MOUNTING, mounting, str(base / state_dir)]
    words = [
        *(*program, "doctor", "-o", "json", f"--run-dir={base / 'r'}"),
        *(f"--state-dir={base / state_dir}", f"--kubelet-dir={base / 'k'}", *options),
    ]
    done = warm.run(words, os.environ if env is None else env, like="vgpuctl")
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
