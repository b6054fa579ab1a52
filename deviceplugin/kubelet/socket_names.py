"""What a plugin's socket is called, within what a Unix socket's path may have.

A socket is called after its resource. Kubernetes allows longer names than fit a path below the
kubelet's directory, so a name that does not fit is cut and ends in a hash of the whole one.
"""

import hashlib
import os
from pathlib import Path

from libvgpu.errors import UsageError

SOCKET_PATH_BYTES = 107  # sun_path less its final NUL
_SUFFIX = ".sock"
_HASH_CHARACTERS = 12
#: As long as ``kubelet.sock``: where the kubelet's own socket fits, so does any of ours.
_FEWEST_BYTES = 12


def socket_path(resource: str, directory: Path) -> Path:
    """Returns the path of the socket on which a resource is served.

    Args:
        resource: with its domain, such as ``nvidia.com/gpu``.
        directory: the kubelet's device-plugins directory (`check_directory`).
    """
    name = resource.replace("/", "-")
    room = _room(directory) - len(_SUFFIX)
    if len(name) > room:
        ending = hashlib.sha256(resource.encode()).hexdigest()[:_HASH_CHARACTERS]
        beginning = name[: max(0, room - len(ending) - 1)]
        name = f"{beginning}-{ending}" if beginning else ending[:room]
    return directory / (name + _SUFFIX)


def check_directory(directory: Path) -> None:
    """Holds the kubelet's device-plugins directory against what a socket's path may have.

    Raises:
        UsageError: no socket fits below it, the kubelet's own included.
    """
    if (room := _room(directory)) < _FEWEST_BYTES:
        raise UsageError(
            f"the kubelet's directory {directory} is {_FEWEST_BYTES - room} bytes too long: with a "
            f"name the path of a Unix socket may have {SOCKET_PATH_BYTES} bytes; choose a shorter "
            "kubelet directory"
        )


def _room(directory: Path) -> int:
    """Returns how many bytes the name of a socket may have."""
    return SOCKET_PATH_BYTES - len(os.fsencode(directory)) - 1
