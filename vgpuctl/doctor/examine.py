"""Goes and gets what the checks judge; changes nothing on the node.

Every question has a timeout or cannot block, and one that fails becomes a finding.
"""

import os
import socket
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from deviceplugin.inventory.nvml import NvmlInventory
from deviceplugin.model.device_forms import ListStrategy
from deviceplugin.model.gpus import Gpu
from deviceplugin.pages.state import AgentReport
from deviceplugin.policy.devices.first_config import FirstConfig
from deviceplugin.policy.devices.foreign_plugins import foreign_plugins
from deviceplugin.recovery.foreign_plugins import device_plugins
from libvgpu.errors import InventoryError, VgpuError
from libvgpu.slices import read_slices

from ..agent_client import agent_report
from ..options import chosen_run_dir
from . import (
    agent_checks,
    closed_check,
    driver,
    examine_files,
    examine_host,
    examine_slices,
    injection_check,
    leftovers,
    mps_strangers,
    node_checks,
    pid_checks,
    plugin_checks,
    published_check,
    selinux_check,
    stopped_config,
)
from .finding import Finding
from .host import Host

AGENT_RUN_DIR = Path("/run/vgpu")
_CONNECT_TIMEOUT_S = 2.0


def node_run_dir(given: Path | None, kubelet_dir: Path) -> Path:
    """Returns the run directory to look in: on a node the agent's, also for an ordinary user.

    Raises:
        UsageError: the default one belongs to somebody else.
    """
    is_node = os.path.isdir(kubelet_dir)
    return AGENT_RUN_DIR if given is None and is_node else chosen_run_dir(given)


@dataclass(frozen=True, slots=True)
class Node:
    """Where the node's files are.

    Attributes:
        given: the run directory that was named, None for the default one; on a node that is the
            agent's, also for an ordinary user, who has one of his own as well.
        state_dir: of the agent.
        kubelet_dir: of the kubelet.
        host_root: where the node's root is seen; empty: where that is known to be.
        config: the agent's config file or directory; None: where the last one came from.
    """

    given: Path | None
    state_dir: Path
    kubelet_dir: Path
    host_root: str = ""
    config: Path | None = None


def _in_silence(what: str) -> None:
    """Tells nobody what is being looked at."""


def findings(
    node: Node,
    begin: Callable[[str], None] = _in_silence,
    report: AgentReport | VgpuError | None = None,
) -> list[Finding]:
    """Returns what every check found.

    Args:
        begin: told of each part before it is looked at, since each may hang for a while.
        report: what the agent has said of itself, or why not; None: it is asked.
    """
    kubelet_dir, state_dir = node.kubelet_dir, node.state_dir
    is_node = os.path.isdir(kubelet_dir)  # False, and no error, where it may not be seen
    run_dir = node_run_dir(node.given, kubelet_dir)
    host = Host.of(node.host_root, os.environ)
    if report is None:
        begin("asking the agent")
        report = agent_said(run_dir)
    begin("asking the driver")
    version, driver_found = driver.ask()
    begin("asking NVML")
    gpus, nvml = _nvml()
    found = [driver_found, *examine_host.driver_halves(host), nvml]
    begin("asking the kubelet")
    for check, path in (
        ("kubelet", kubelet_dir / "device-plugins" / "kubelet.sock"),
        ("podresources", kubelet_dir / "pod-resources" / "kubelet.sock"),
    ):
        found.append(agent_checks.kubelet_socket(check, path, connect_problem(path), is_node))
    found.append(agent_checks.agent(report, time.time(), is_node))
    begin("reading the config")
    first: FirstConfig | None = None
    if isinstance(report, AgentReport):
        found += _of_agent(report, run_dir, state_dir)
        lists: Collection[str] = report.injection.lists
    else:
        managed = (run_dir, state_dir, kubelet_dir)
        stopped = stopped_config.look(node.config, state_dir, managed, gpus, is_node)
        found += stopped.findings
        first = stopped.first
        lists = _lists(first)
        if first is not None:
            found += stopped_config.mig(first)
    begin("looking for other device plugins and the runtime")
    if is_node:
        found += _other_plugins(kubelet_dir / "device-plugins", _ours(report, first), gpus)
        found.append(examine_host.runtime(host, lists))
    begin("looking at the files of agent and slices")
    found += examine_files.run_directory(run_dir)
    found += closed_check.look(run_dir, state_dir)
    found += leftovers.room(state_dir)
    found.append(examine_files.shim(report, state_dir))
    found += selinux_check.look(host, run_dir, state_dir)
    try:
        slices = read_slices(run_dir)
    except (VgpuError, OSError):
        slices = ()  # the check of the run directory says why
    known = examine_host.known_slices(report, kubelet_dir, first)
    found += leftovers.look(run_dir, slices, known)
    begin("looking at the processes of this node")
    running = examine_host.processes(host, run_dir, slices)
    found += examine_host.of_processes(host, running, version, state_dir)
    begin("looking for MPS daemons")
    found += mps_strangers.look(run_dir, host.proc)
    found += examine_slices.entry_points(slices)
    return found + examine_slices.fault_domains(slices, report)


def _of_agent(report: AgentReport, run_dir: Path, state_dir: Path) -> list[Finding]:
    """Judges what the agent says of itself."""
    return [
        *agent_checks.config(report),
        *stopped_config.kept_config(state_dir),
        agent_checks.resources(report),
        *agent_checks.podresources(report),
        *agent_checks.pods(report),
        *published_check.published(report),
        *pid_checks.node_pids(report),
        *agent_checks.gpus(report),
        *agent_checks.watch(report),
        *injection_check.injection(report.injection),
        *examine_slices.mps_daemons(run_dir, report),
    ]


def _lists(first: FirstConfig | None) -> tuple[str, ...]:
    """Returns which forms of answer a config asks for; none where the node decides."""
    lists = first.config.forms.lists if first else ()
    return () if ListStrategy.AUTO in lists else tuple(map(str, lists))


def _ours(report: AgentReport | VgpuError, first: FirstConfig | None) -> list[str] | None:
    """Returns the resources of the agent, None where they cannot be told from others'."""
    if isinstance(report, AgentReport):
        return [resource.name for resource in report.resources]
    return [each.name for each in first.layout.resources] if first else None


def _other_plugins(directory: Path, ours: list[str] | None, gpus: Sequence[Gpu]) -> list[Finding]:
    if ours is None or not gpus:
        return []  # the checks of config or NVML say why
    try:
        seen = device_plugins(directory)
    except (OSError, ValueError) as error:
        return [plugin_checks.unseen(directory, error)]
    uuids = [gpu.uuid for gpu in gpus]
    return [plugin_checks.other_plugins(foreign_plugins(seen, ours, uuids))]


def _nvml() -> tuple[tuple[Gpu, ...], Finding]:
    """Returns the GPUs that NVML lists, none where it fails, and what that means."""
    try:
        listing = NvmlInventory().listing()
    except InventoryError as error:
        return (), node_checks.nvml(None, error.message)
    sick = [f"GPU {each} does not work: {each.reason}" for each in listing.sick]
    return listing.gpus, node_checks.nvml([gpu.name for gpu in listing.gpus], "; ".join(sick))


def connect_problem(path: Path) -> OSError | None:
    """Returns why a Unix socket cannot be connected to, None where it can."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_CONNECT_TIMEOUT_S)
        try:
            client.connect(str(path))
        except OSError as error:
            return error
    return None


def agent_said(run_dir: Path) -> AgentReport | VgpuError:
    """Returns what the agent of a run directory says of itself, or why it says nothing."""
    try:
        return agent_report(run_dir)
    except VgpuError as error:
        return error
