"""Goes and gets what the checks of run directory and shim judge."""

import os
import stat
from pathlib import Path

from deviceplugin.pages.state import AgentReport
from libvgpu import artifacts, region
from libvgpu.errors import VgpuError

from . import node_checks
from .finding import Finding

_MOUNTS = Path("/proc/self/mountinfo")


def run_directory(path: Path) -> list[Finding]:
    """Looks at file system, modes and room of the run directory."""
    try:
        status, room = path.stat(), os.statvfs(path)
    except OSError as error:
        return [node_checks.no_run_directory(path, error)]
    try:
        mounts = _MOUNTS.read_bytes().decode(errors="replace")
    except OSError:
        mounts = ""
    seen = node_checks.RunDirectory(
        path=path,
        filesystem=node_checks.filesystem_of(status.st_dev, mounts),
        mode=stat.S_IMODE(status.st_mode),
        owner=status.st_uid,
        free_bytes=room.f_bavail * room.f_frsize,
        slice_bytes=region.slice_bytes(),
    )
    return node_checks.run_directory(seen, os.geteuid())


def shim(report: AgentReport | VgpuError, state_dir: Path) -> Finding:
    """Looks whether the build of the shim that containers get is there."""
    has_agent = isinstance(report, AgentReport)
    build: str | VgpuError
    try:
        # The agent's own, where it answers: its package may be another than ours.
        build = (
            report.shim_build
            if isinstance(report, AgentReport)
            else artifacts.build_id(artifacts.shim_path())
        )
    except VgpuError as error:
        return node_checks.shim(error, None, state_dir, has_agent)
    return node_checks.shim(build, _installed(state_dir / "lib" / build), state_dir, has_agent)


def _installed(directory: Path) -> bool | None:
    try:
        return all((directory / name).stat().st_size for name in ("libvgpu.so", "ld.so.preload"))
    except PermissionError:
        return None
    except OSError:
        return False
