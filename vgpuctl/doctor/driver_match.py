"""Checks the driver's two halves against each other: kernel module and libraries. Pure.

A package manager replaces the libraries while the old module goes on running, and NVML and CUDA
fail until the module is loaded again.
"""

import re

from .finding import Finding, fail

_CHECK = "driver-match"
#: "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug …", open modules alike.
_MODULE = re.compile(r"^NVRM version:.*?\s(\d+\.\d+(?:\.\d+)*)\s", re.M)


def module_version(text: str) -> str:
    """Returns the version of the module that is loaded, empty where none is.

    Args:
        text: of ``/proc/driver/nvidia/version``.
    """
    found = _MODULE.search(text)
    return found[1] if found else ""


def match(module: str, libraries: str) -> list[Finding]:
    """Tells of a module and libraries of two versions.

    Args:
        module: version of the loaded one; empty: not known.
        libraries: version of those on the node; empty: not known.
    """
    if not module or not libraries or module == libraries:
        return []
    return [
        fail(
            _CHECK,
            f"the kernel has the driver module {module}, and the libraries on this node are of "
            f"{libraries}: NVML and CUDA fail with a version mismatch",
            "reboot the node, or drain it and load the module again: rmmod nvidia_uvm nvidia_drm "
            "nvidia_modeset nvidia && modprobe nvidia",
        )
    ]
