"""Goes and gets what the checks of the node's own files and processes judge."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from deviceplugin.cdi.driver_files import find_driver_files, library_directories
from deviceplugin.cdi.runtime_files import read_facts
from deviceplugin.kubelet.answer_codec import mounts_of
from deviceplugin.pages.state import AgentReport
from deviceplugin.policy.devices.first_config import FirstConfig
from deviceplugin.recovery.kubelet_checkpoint import KubeletCheckpoint
from deviceplugin.recovery.kubelet_records import allocation_of
from libvgpu import artifacts
from libvgpu.errors import VgpuError
from libvgpu.slices import Slice

from . import driver_match, image_checks, pid_checks, runtime_check
from .finding import Finding
from .host import Host
from .leftovers import Known
from .slice_processes import SliceProcess, slice_processes

_MODULE = "/proc/driver/nvidia/version"
_DRIVER_ROOTS = ("/", "/run/nvidia/driver")  # the latter is the GPU Operator's
_DOMAIN = "nvidia.com"
_KUBELET = "kubelet"


def runtime(host: Host, lists: Collection[str]) -> Finding:
    """Looks at the container runtime's files; see `runtime_check.runtime`."""
    if not host.root.is_seen:
        return runtime_check.unseen()
    return runtime_check.runtime(read_facts(host.root), lists)


def driver_halves(host: Host) -> list[Finding]:
    """Compares the loaded module with the libraries on the node."""
    module = driver_match.module_version(host.text(_MODULE) or _own_text(Path(_MODULE)))
    if not module or not host.root.is_seen:
        return []
    trees = [host.root.tree.below(root) for root in _DRIVER_ROOTS]
    found = [find_driver_files(t, library_directories(t, os.uname().machine)) for t in trees]
    versions = [files.version for files in found if files is not None]
    if not versions or module in versions:  # what another install left behind is not in use
        return []
    return driver_match.match(module, versions[0])


def processes(host: Host, run_dir: Path, slices: Sequence[Slice]) -> list[SliceProcess]:
    """Returns the processes of the pods that have these slices."""
    owners = {
        each.meta.allocation_id: "/".join(
            filter(None, (each.meta.namespace, each.meta.pod, each.meta.container))
        )
        or f"allocation {each.meta.allocation_id}"
        for each in slices
        if each.meta.source == _KUBELET
    }
    return slice_processes(owners, run_dir, host.proc)


def of_processes(
    host: Host, found: Sequence[SliceProcess], version: int | None, state_dir: Path
) -> list[Finding]:
    """Checks what runs in containers with slices.

    Args:
        version: of the driver's CUDA; None: not known.
    """
    mounts = _own_text(host.proc / "1" / "mountinfo") or _own_text(host.proc / "self" / "mountinfo")
    return [
        *pid_checks.cgroups(pid_checks.layout(mounts), found),
        *image_checks.images(found, _needed_glibc(state_dir)),
        *image_checks.cuda(found, version),
    ]


def known_slices(
    report: AgentReport | VgpuError, kubelet_dir: Path, first: FirstConfig | None
) -> Known | None:
    """Returns the slices of the agent that somebody has, None where nobody tells.

    Args:
        first: what the agent would start with, where it is down and that is known.
    """
    if isinstance(report, AgentReport):
        return Known({each.allocation for each in report.allocations}, "the agent", True)
    domain = first.config.resource_domain if first else _DOMAIN
    reading = KubeletCheckpoint(kubelet_dir, domain, mounts_of).read()
    if reading.problem is not None:
        return None
    ids = {allocation for each in reading.entries if (allocation := allocation_of(each))}
    return Known(ids, "the kubelet", False)


def _needed_glibc(state_dir: Path) -> int:
    """Returns what the build of the shim that containers get needs."""
    try:
        built = artifacts.shim_path()
        installed = state_dir / "lib" / artifacts.build_id(built) / built.name
        return image_checks.needed_glibc((installed if installed.exists() else built).read_bytes())
    except (VgpuError, OSError):
        return 0  # the check of the shim says why


def _own_text(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""
