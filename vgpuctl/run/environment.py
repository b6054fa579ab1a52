"""The environment of a command under a slice. Pure.

What ``--env`` sets is seen by the command only, and by the look-up of the command itself; what
makes the slice hold is set behind it and cannot be set by it.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from libvgpu.errors import UsageError
from libvgpu.limits import ContainerLimits

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: What a slice is made of; a program that changes these has none, or another one.
_OURS = ("VGPU_", "CUDA_MPS_")
_OURS_WHOLE = ("LD_PRELOAD", "CUDA_VISIBLE_DEVICES")


def parse_environment(words: Sequence[str]) -> dict[str, str]:
    """Returns the variables of ``--env KEY=VALUE``; of two for one name the last one counts.

    Raises:
        UsageError: a word has another form, or names a variable that makes the slice.
    """
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise UsageError(
                f"--env {word!r} sets no variable: give NAME=VALUE, for example OMP_NUM_THREADS=4"
            )
        if name.startswith(_OURS) or name in _OURS_WHOLE:
            raise UsageError(
                f"--env {name} cannot be set, because vgpuctl run makes the slice with it; any "
                f"variable but {', '.join(_OURS_WHOLE)} and those that begin with "
                f"{' or '.join(_OURS)} is allowed"
            )
        found[name] = value
    return found


def slice_environment(
    base: Mapping[str, str], directory: Path, limits: ContainerLimits, shim: Path
) -> dict[str, str]:
    """Returns the environment in which a command has the slice.

    Args:
        base: what it has besides.
        directory: of the slice.
        shim: the preload library.
    """
    environment = dict(base)
    preloaded = environment.get("LD_PRELOAD", "")
    environment["LD_PRELOAD"] = f"{shim}:{preloaded}" if preloaded else str(shim)
    environment["VGPU_DIR"] = str(directory)
    # So that the program's device 0 is one it may use; a GPU that `limits` does not name is not.
    environment["CUDA_VISIBLE_DEVICES"] = ",".join(d.uuid for d in limits.devices)
    pipe = limits.devices[0].mps_pipe_directory
    if pipe:
        environment["CUDA_MPS_PIPE_DIRECTORY"] = pipe
    return environment
