"""This version and the one before it take over from each other, under slices that are in use."""

import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from deviceplugin.store import checkpoint, journal
from deviceplugin.testing import AdmittedPod
from libvgpu import region
from libvgpu._native import lib
from libvgpu.limits import DeviceLimit
from libvgpu.sim import Machine
from support import ROOT
from support.node.earlier import earlier_version
from support.node.in_process import wait_until_lost
from support.node.simulated import CONFIG, SimulatedNode
from support.shim.talker import Talker
from support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.long

GIB, PIECE = 1 << 30, 256 << 20
HELD = 2 * GIB


def is_read_by(root: Path) -> bool:
    """Returns whether a version knows the layout that this one's files have."""
    contract = (root / "libvgpu/include/vgpu/contract.h").read_text()
    (layout,) = re.findall(r"#define VGPU_LAYOUT_VERSION (\d+)", contract)
    return int(layout) >= int(lib.VGPU_LAYOUT_VERSION)


def of_version(root: Path) -> tuple[str, ...]:
    """Returns what a checkout's own agent is started by."""
    return ("env", "-C", str(root))


@dataclass
class Tenant:
    """A container whose program holds memory, under the shim that its agent mounted."""

    pod: AdmittedPod
    directory: Path
    program: Talker
    machine: Machine

    @property
    def limit(self) -> DeviceLimit:
        (device,) = region.read_limits(self.directory).limits.devices
        return device

    def check(self, memory: int, core: int) -> None:
        """Its program is attached, has what it had, gets all of its limit and nothing more."""
        wait_until(lambda: self.limit.memory_limit_bytes == memory, str(self.limit))
        assert self.limit.core_percent == core
        (process,) = (p for p in region.read_usage(self.directory).processes if p.alive)
        assert (process.pid, process.devices[0].used_bytes) == (self.program.pid, self.holds())
        self.check_memory(memory)

    def check_memory(self, memory: int) -> None:
        assert self.holds() // HELD == 1
        pieces = self.program.ask(f"fill {PIECE}")
        assert memory - PIECE < self.holds() <= memory
        for _ in range(pieces - 1):
            assert self.program.ask("free") == 0

    def holds(self) -> int:
        """Returns what the GPU says that its program has."""
        clients = (client for gpu in self.machine.books() for client in gpu.clients)
        return sum(each.memory_bytes for each in clients if each.pid == self.program.pid)


class Node:
    """A node whose agent's version changes."""

    def __init__(self, node: SimulatedNode, program: Path) -> None:
        self.node, self._program = node, program
        self.tenants: dict[str, Tenant] = {}

    def begin(self, name: str, core: int, memory: int) -> Tenant:
        return self.start(self.node.admit(name, vgpu_core=core, vgpu_memory=memory))

    def start(self, pod: AdmittedPod) -> Tenant:
        """Starts a pod's container, and ends what ran in it."""
        if pod.manifest.name in self.tenants:
            self.tenants[pod.manifest.name].program.kill()
        directory = self.node.slice_of(pod)
        options = self.node.kubelet.run_options(pod, "c")
        (shim,) = (m.host_path for m in options.mounts if m.host_path.endswith("libvgpu.so"))
        variables = {
            "LD_PRELOAD": shim,
            "VGPU_DIR": str(directory),
            "CUDA_VISIBLE_DEVICES": options.envs["NVIDIA_VISIBLE_DEVICES"],
        }
        program = Talker([str(self._program)], self.node.machine.environment(variables))
        tenant = Tenant(pod, directory, program, self.node.machine)
        self.tenants[pod.manifest.name] = tenant
        program.holds(HELD)
        return tenant

    def take_over(self, root: Path) -> None:
        """Replaces the agent by another version's."""
        before = self.books()
        assert self.node.agent is not None
        self.node.agent.send_signal(signal.SIGTERM)
        assert self.node.agent.wait(PATIENCE_S) == 0
        self.node.agent = None
        wait_until_lost(self.node.kubelet)
        self.node.prefix = of_version(root)
        self.node.start_agent()
        assert self.books() == before

    def rule(self, memory: str, core: str) -> None:
        self.node.config.write_text(
            f'{CONFIG}limits:\n- {{memory: {memory}, core: "{core}", compute: strict}}\n'
        )

    def books(self) -> dict[str, set[str]]:
        """Returns the units of each allocation; no unit is given twice, and the kubelet agrees."""
        raw = (self.node.base / "s" / checkpoint.NAME).read_bytes()
        given = {a.allocation_id: set(a.given) for a in journal.replay(raw).allocations}
        kubelets = [
            unit
            for tenant in self.tenants.values()
            for container in tenant.pod.containers
            for units in container.devices.values()
            for unit in units
        ]
        units = [unit for each in given.values() for unit in each]
        assert sorted(units) == sorted(set(units)) == sorted(kubelets)
        return given


@pytest.fixture
def node(short_path: Path, life_program: Path) -> Iterator[Node]:
    with SimulatedNode(short_path, "t4*2", prefix=of_version(earlier_version())) as simulated:
        made = Node(simulated, life_program)
        yield made
        for tenant in made.tenants.values():
            tenant.program.kill()


def test_neither_an_upgrade_nor_a_rollback_detaches_a_slice_or_gives_a_unit_twice(
    node: Node,
) -> None:
    first, second = node.begin("first", 30, 7), node.begin("second", 60, 7)
    first.check(7 * GIB, 30)

    node.take_over(ROOT)
    third = node.begin("third", 40, 7)
    for tenant, core in ((first, 30), (second, 60), (third, 40)):
        tenant.check(7 * GIB, core)
    node.rule("6Gi", "50%")
    for tenant, core in ((first, 15), (second, 30), (third, 20)):
        tenant.check(6 * GIB, core)

    node.take_over(earlier_version())
    fourth = node.begin("fourth", 50, 4)
    for tenant, core in ((first, 15), (second, 30)):
        tenant.check(6 * GIB, core)
    node.rule("3Gi", "40%")
    for tenant, core in ((first, 12), (second, 24), (fourth, 20)):
        tenant.check(3 * GIB, core)
    if is_read_by(earlier_version()):
        third.check(3 * GIB, 16)
    thirds = 3 * GIB if is_read_by(earlier_version()) else 6 * GIB  # until it starts again
    third.check_memory(thirds)

    node.take_over(ROOT)
    for tenant, core in ((first, 12), (second, 24), (fourth, 20)):
        tenant.check(3 * GIB, core)
    third.check_memory(thirds)
    node.start(third.pod).check(3 * GIB, 16)
