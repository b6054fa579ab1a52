"""Goes and gets what the checks judge; changes nothing on the node.

Every question has a timeout or cannot block, and one that fails becomes a finding.
"""

import os
import socket
import stat
import time
from collections.abc import Sequence
from pathlib import Path

from deviceplugin.inventory.nvml import NvmlInventory
from deviceplugin.mps.control_pipe import READY_COMMAND, ask
from deviceplugin.mps.daemon_home import DaemonHome
from deviceplugin.mps.state_files import READY, read_state, runner_alive
from deviceplugin.policy.foreign_plugins import foreign_plugins
from deviceplugin.recovery.foreign_plugins import device_plugins
from libvgpu import artifacts, region
from libvgpu.errors import InventoryError, MpsError, VgpuError
from libvgpu.slices import Slice, read_slices

from ..agent_client import AgentReport, agent_report
from ..options import chosen_run_dir
from . import agent_checks, driver, injection_check, node_checks, plugin_checks
from .finding import Finding

AGENT_RUN_DIR = Path("/run/vgpu")
_CONNECT_TIMEOUT_S = 2.0
_MOUNTS = Path("/proc/self/mountinfo")


def node_run_dir(given: Path | None, kubelet_dir: Path) -> Path:
    """Returns the run directory to look in: on a node the agent's, also for an ordinary user.

    Raises:
        UsageError: the default one belongs to somebody else.
    """
    is_node = os.path.isdir(kubelet_dir)
    return AGENT_RUN_DIR if given is None and is_node else chosen_run_dir(given)


def findings(given: Path | None, state_dir: Path, kubelet_dir: Path) -> list[Finding]:
    """Returns what every check found.

    Args:
        given: the run directory that was named, None for the default one; on a node that is the
            agent's, also for an ordinary user, who has one of his own as well.
        state_dir: of the agent.
        kubelet_dir: of the kubelet.
    """
    is_node = os.path.isdir(kubelet_dir)  # False, and no error, where it may not be seen
    run_dir = node_run_dir(given, kubelet_dir)
    report = _report(run_dir)
    found = [driver.look(), _nvml()]
    for check, path in (
        ("kubelet", kubelet_dir / "device-plugins" / "kubelet.sock"),
        ("podresources", kubelet_dir / "pod-resources" / "kubelet.sock"),
    ):
        found.append(agent_checks.kubelet_socket(check, path, connect_problem(path), is_node))
    if is_node:
        found += _other_plugins(kubelet_dir / "device-plugins", report)
    found.append(agent_checks.agent(report, time.time(), is_node))
    if isinstance(report, AgentReport):
        found += [*agent_checks.config(report), agent_checks.resources(report)]
        found += agent_checks.podresources(report)
        found += agent_checks.pods(report)
        found += agent_checks.gpus(report) + agent_checks.watch(report)
        found += injection_check.injection(report.injection)
    found += _run_directory(run_dir)
    found.append(_shim(report, state_dir))
    if isinstance(report, AgentReport):
        found += agent_checks.mps_daemons(
            [
                (uuid, _mps_problem(run_dir, uuid), DaemonHome(run_dir, uuid).leads_to())
                for uuid in report.mps_gpus
            ]
        )
    try:
        slices = read_slices(run_dir)
    except (VgpuError, OSError):
        slices = ()  # the check of the run directory says why
    found += _entry_points(slices)
    return found + agent_checks.fault_domains(_mps_clients(slices, report))


def _other_plugins(directory: Path, report: AgentReport | VgpuError) -> list[Finding]:
    if not isinstance(report, AgentReport):
        return []  # its resources could not be told from others
    try:
        seen = device_plugins(directory)
        gpus = [gpu.uuid for gpu in NvmlInventory().gpus()]
    except (OSError, ValueError) as error:
        return [plugin_checks.unseen(directory, error)]
    except InventoryError:
        return []  # the check of NVML says why
    ours = [resource.name for resource in report.resources]
    return [plugin_checks.other_plugins(foreign_plugins(seen, ours, gpus))]


def _entry_points(slices: Sequence[Slice]) -> list[Finding]:
    noted = [
        [
            (process.unknown_entries + process.moved_entries, process.noted_entry)
            for process in (each.usage.processes if each.usage else ())
            if process.alive and process.unknown_entries + process.moved_entries
        ]
        for each in slices
    ]
    return node_checks.entry_points(
        [note for notes in noted for note in notes], sum(map(bool, noted))
    )


def _mps_clients(slices: Sequence[Slice], report: AgentReport | VgpuError) -> dict[str, int]:
    """Returns the GPUs whose tenants share an MPS server, with how many slices do so now."""
    found = dict.fromkeys(report.mps_gpus, 0) if isinstance(report, AgentReport) else {}
    for each in slices:
        for device in each.limits.devices if each.limits else ():
            if device.is_mps_client:
                found[device.uuid] = found.get(device.uuid, 0) + 1
    return found


def _nvml() -> Finding:
    try:
        listing = NvmlInventory().listing()
        sick = [f"GPU {each} does not work: {each.reason}" for each in listing.sick]
        return node_checks.nvml([gpu.name for gpu in listing.gpus], "; ".join(sick))
    except InventoryError as error:
        return node_checks.nvml(None, error.message)


def connect_problem(path: Path) -> OSError | None:
    """Returns why a Unix socket cannot be connected to, None where it can."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_CONNECT_TIMEOUT_S)
        try:
            client.connect(str(path))
        except OSError as error:
            return error
    return None


def _report(run_dir: Path) -> AgentReport | VgpuError:
    try:
        return agent_report(run_dir)
    except VgpuError as error:
        return error


def _run_directory(path: Path) -> list[Finding]:
    try:
        status, room = path.stat(), os.statvfs(path)
    except OSError as error:
        return [node_checks.no_run_directory(path, error)]
    try:
        mounts = _MOUNTS.read_text()
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


def _shim(report: AgentReport | VgpuError, state_dir: Path) -> Finding:
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


def _mps_problem(run_dir: Path, uuid: str) -> str:
    try:
        state = read_state(run_dir)
        if runner_alive(run_dir) and state is not None and uuid in state.gpus:
            now = state.gpus[uuid]
            return "" if now.phase == READY else now.reason or f"it is {now.phase}"
        if state is not None and state.problem:
            return state.problem
        ask(run_dir, uuid, READY_COMMAND)
    except MpsError as error:
        return error.message
    return ""
