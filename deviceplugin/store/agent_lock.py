"""One agent for each state directory: two would give the same units away."""

import fcntl
import os
from pathlib import Path
from typing import IO

from libvgpu.closed_files import open_lock
from libvgpu.errors import VgpuError


def only_agent(state_dir: Path) -> IO[bytes]:
    """Returns the lock of a state directory; the kernel lets go of it when the agent ends.

    Raises:
        VgpuError: another agent has it, or another user could have it.
    """
    path = state_dir / "agent.lock"
    try:
        file = os.fdopen(open_lock(path), "r+b")
    except OSError as error:
        raise VgpuError(f"{path} cannot be opened: {error.strerror}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise VgpuError(f"another agent is running with the state directory {state_dir}") from None
    return file
