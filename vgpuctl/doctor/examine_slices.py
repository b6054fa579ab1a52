"""Goes and gets what the checks of slices and MPS judge."""

from collections.abc import Sequence
from pathlib import Path

from deviceplugin.mps.control_pipe import READY_COMMAND, ask
from deviceplugin.mps.daemon_home import DaemonHome
from deviceplugin.mps.state_files import READY, read_state, runner_alive
from deviceplugin.pages.state import AgentReport
from libvgpu.errors import MpsError, VgpuError
from libvgpu.slices import Slice

from . import agent_checks, node_checks
from .finding import Finding


def entry_points(slices: Sequence[Slice]) -> list[Finding]:
    """Looks for entry points that the shim of a process does not know."""
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


def fault_domains(slices: Sequence[Slice], report: AgentReport | VgpuError) -> list[Finding]:
    """Looks which GPUs' tenants share an MPS server."""
    return agent_checks.fault_domains(_mps_clients(slices, report))


def mps_daemons(run_dir: Path, report: AgentReport) -> list[Finding]:
    """Asks the MPS daemon of each GPU that is under MPS."""
    return agent_checks.mps_daemons(
        [
            (uuid, _mps_problem(run_dir, uuid), DaemonHome(run_dir, uuid).leads_to())
            for uuid in report.mps_gpus
        ]
    )


def _mps_clients(slices: Sequence[Slice], report: AgentReport | VgpuError) -> dict[str, int]:
    """Returns the GPUs whose tenants share an MPS server, with how many slices do so now."""
    found = dict.fromkeys(report.mps_gpus, 0) if isinstance(report, AgentReport) else {}
    for each in slices:
        for device in each.limits.devices if each.limits else ():
            if device.is_mps_client:
                found[device.uuid] = found.get(device.uuid, 0) + 1
    return found


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
