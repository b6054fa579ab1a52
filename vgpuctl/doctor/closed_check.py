"""Whether other users of the node can get at the directories and locks of the agent.

`look` goes and sees; `judge` is pure. Who may open a lock file can lock it, and no agent starts
then.
"""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from .finding import Finding, ok, warn

_CHECK = "locks"


def look(run_dir: Path, state_dir: Path) -> list[Finding]:
    """Looks at what is there of them; the mode of the run directory itself is another check's."""
    modes = []
    for path in (
        state_dir,
        state_dir / "agent.lock",
        state_dir / "run-dir.lock",
        run_dir / "mps" / "lock",
        run_dir / "arbiters",
    ):
        try:
            modes.append((path, os.lstat(path).st_mode))
        except OSError:
            continue  # not made yet, or not to be seen by this user
    return judge(modes)


def judge(modes: Sequence[tuple[Path, int]]) -> list[Finding]:
    """Judges paths with their modes."""
    found = []
    for path, mode in modes:
        if stat.S_IMODE(mode) & 0o077:
            wanted = "0700" if stat.S_ISDIR(mode) else "0600"
            found.append(
                warn(
                    _CHECK,
                    f"{path} has mode {stat.S_IMODE(mode):04o}, so that other users can keep an "
                    f"agent from starting; {wanted} is right",
                    f"restart the agent, which closes what is its own; else: chmod {wanted} {path}",
                )
            )
    if found or not modes:
        return found
    return [ok(_CHECK, f"{len(modes)} directories and locks of the agent are closed to others")]
