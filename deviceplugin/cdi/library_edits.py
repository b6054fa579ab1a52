"""What a CDI spec does so that the loader of a container finds the driver's libraries. Pure.

Where the node has NVIDIA's hook, libraries keep their path, and the hook makes links and the
loader's cache. Elsewhere each is mounted by the names that programs ask for, into the directories
where loaders look without a cache: those of Debian's and those of Red Hat's images.
"""

import os
from collections.abc import Sequence
from typing import Any

from .driver_files import Library

_MOUNT_OPTIONS = ("nosuid", "nodev", "rbind", "rprivate")
_MULTIARCH = {"x86_64": "/usr/lib/x86_64-linux-gnu", "aarch64": "/usr/lib/aarch64-linux-gnu"}
#: Links that the loader's cache does not make: many programs ask for the unversioned name.
_UNVERSIONED = ("libcuda.so", "libnvidia-opticalflow.so")


def bind_mount(host_path: str, container_path: str, mode: str = "ro") -> dict[str, Any]:
    """Returns a mount of a file or directory; ``mode`` is ``ro`` or ``rw``."""
    return {
        "hostPath": host_path,
        "containerPath": container_path,
        "options": [mode, *_MOUNT_OPTIONS],
    }


def mounts_by_name(libraries: Sequence[Library], machine: str) -> list[dict[str, Any]]:
    """Returns mounts of libraries by all of their names, where loaders look without a cache.

    Args:
        machine: as ``uname -m`` says.
    """
    directories = [d for d in ("/usr/lib64", _MULTIARCH.get(machine)) if d]
    return [
        bind_mount(library.host_path, f"{directory}/{name}")
        for library in libraries
        for name in library.names
        for directory in directories
    ]


def hooks_of(path: str, libraries: Sequence[Library]) -> list[dict[str, Any]]:
    """Returns what NVIDIA's hook is to do once the mounts are there."""
    program = os.path.basename(path)
    # One program has the hooks as commands of a command, the other is nothing else.
    begin = [program, "hook"] if program == "nvidia-ctk" else [program]
    links = [
        f"--link={name}.1::{os.path.dirname(library.path)}/{name}"
        for library in libraries
        for name in _UNVERSIONED
        if os.path.basename(library.path).startswith(f"{name}.")
    ]
    folders = dict.fromkeys(f"--folder={os.path.dirname(each.path)}" for each in libraries)
    orders = [["create-symlinks", *links]] if links else []
    return [
        {"hookName": "createContainer", "path": path, "args": [*begin, *order]}
        for order in (*orders, ["update-ldcache", *folders])
    ]
