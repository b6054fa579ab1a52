"""What `flags.mpsRoot` may be: the directory of the node for pipes and logs of the MPS daemons.

By itself it is judged with the other flags. Which directories of the node it must keep clear of,
only a process on that node knows, so those are given. Follows links, writes nothing.
"""

import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from libvgpu.places import Places

#: A path of the kernel has 4095, and ours go on below the root.
_MOST_BYTES = 4000
_MOST_NAME_BYTES = 255
_SHOWN_MOST = 60


def root_problem(root: str, managed: Iterable[Path] = ()) -> str:
    """Returns what is wrong with a root, to follow the name of who says it; empty where nothing is.

    Args:
        root: empty for the run directory.
        managed: directories of the node in which it must not be.
    """
    if not root:
        return ""
    path = PurePosixPath(root)
    if not path.is_absolute() or ".." in path.parts or len(path.parts) < 2:
        return f"is {root!r}, allowed is an absolute path, not /, without .."
    if max(map(_length, path.parts)) > _MOST_NAME_BYTES or _length(root) > _MOST_BYTES:
        return (
            f"is {root[:_SHOWN_MOST]!r}… of {_length(root)} bytes, too long for the files below "
            f"it; allowed are {_MOST_BYTES} bytes, {_MOST_NAME_BYTES} for each name"
        )
    real = Path(os.path.realpath(root))
    for directory in managed:
        if real.is_relative_to(os.path.realpath(directory)):
            return (
                f"is {root!r}, which lies in {directory}, where agent or kubelet keep files of "
                "their own; allowed is a path elsewhere, such as /run/nvidia/mps"
            )
    return ""


def check_mps_root(root: str, places: Places, managed: Iterable[Path] = ()) -> None:
    """Holds the root that a config says against what it may be.

    Args:
        managed: see `root_problem`.

    Raises:
        ConfigError: it may not be that.
    """
    problem = root_problem(root, managed)
    if problem:
        raise places.error("$.flags.mpsRoot", f"flags.mpsRoot {problem}")


def _length(text: str) -> int:
    return len(os.fsencode(text))
