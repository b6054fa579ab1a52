"""Checks of the kubelet's other device plugins. Pure."""

from pathlib import Path

from deviceplugin.policy.devices.foreign_plugins import ForeignPlugins

from .finding import Finding, fail, ok, warn
from .node_checks import AS_ROOT

_FIX = (
    "switch one of them off: kubectl label node NODE nvidia.com/gpu.deploy.device-plugin=false "
    "--overwrite where it is the GPU Operator's, or take the GPUs out of our config"
)


def other_plugins(found: ForeignPlugins) -> Finding:
    """Tells whether another device plugin hands out the GPUs of this node."""
    if found:
        return fail("other-plugins", found.sentence(), _FIX)
    return ok("other-plugins", "no other device plugin hands out these GPUs")


def unseen(directory: Path, problem: OSError | ValueError) -> Finding:
    """Says why that could not be seen."""
    if isinstance(problem, PermissionError):
        return warn("other-plugins", f"{directory} may not be seen by this user", AS_ROOT)
    return warn(
        "other-plugins",
        f"whether another device plugin is there cannot be seen: {problem}",
        "see that --kubelet-dir names the kubelet's directory",
    )
