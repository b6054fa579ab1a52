"""The agent's process killed at random instants of random histories: no slice twice, none lost.

An instant is a matter of time, so a seed does not replay a life here. In the gate the agent is
killed at counted changes of its files (`test_histories.py`), and its process, once, in
`recovery/test_recovery.py`.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from deviceplugin.testing import StandInKubelet
from libvgpu.sim.machine import Machine
from libvgpu.sim.profiles import PROFILES
from support import ROOT
from support.node.in_process import GIB, wait_until_lost
from support.waiting import PATIENCE_S, wait_until
from support.world.histories import CORE, MEMORY, MEMORY_UNITS, Life
from support.world.kill_histories import UnderKills
from support.world.lives import KILLS as WEIGHTS
from vgpuctl.agent_client import agent_report

KILLS = 200
CONFIG = "version: v1\nsharing: {fractional: [{family: vgpu, memoryUnit: 1Gi}]}\n"


class KilledNode:
    """A kubelet stand-in here, and the agent as a process of its own on a simulated machine."""

    def __init__(self, base: Path) -> None:
        self.base, self.run_dir = base, base / "r"
        profile = replace(PROFILES["t4"], memory_bytes=MEMORY_UNITS * GIB)
        self.machine = Machine.create([profile] * 3, base / "machine")
        self.kubelet = StandInKubelet(base / "k", seed=3, makes_pod_directories=True)
        self.kubelet.start()
        self.config = base / "config.yaml"
        self.config.write_text(CONFIG)
        self.agent: subprocess.Popen[bytes] | None = None
        self.killer: threading.Timer | None = None
        self.hides_record = False

    def start_agent(self) -> None:
        with open(self.base / "log", "ab") as log:
            self.agent = subprocess.Popen(
                [sys.executable, "-m", "deviceplugin", f"--config={self.config}",
                 f"--run-dir={self.run_dir}", f"--kubelet-dir={self.base / 'k'}",
                 f"--state-dir={self.base / 's'}", "--metrics-address=127.0.0.1:0"],
                cwd=ROOT, env=self.machine.environment(os.environ), stderr=log,
            )  # fmt: skip

    def stop_agent(self) -> None:
        assert self.agent is not None
        self.agent.kill()
        self.agent.wait(PATIENCE_S)
        wait_until_lost(self.kubelet)

    def wait_registered(self, resources: list[str]) -> None:
        self.kubelet.wait_for_resources(resources, PATIENCE_S)

    def is_registered(self) -> bool:
        return all(each.registered_at is not None for each in agent_report(self.run_dir).resources)

    def list_podresources(self) -> object:
        raise NotImplementedError  # nobody asks next to the agent

    def pass_time(self, seconds: float) -> None:
        """Time passes by itself."""

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        wait_until(condition, what)

    def arm(self, kill_at: int) -> None:
        """Has the agent killed in so many milliseconds; an admission lasts 5 to 30."""
        if self.agent is not None:
            self.killer = threading.Timer(kill_at / 1000, self.agent.send_signal, [signal.SIGKILL])
            self.killer.start()

    def kill(self) -> bool:
        """Kills the agent, if it lives."""
        assert self.agent is not None and self.killer is not None
        self.killer.join()
        lived = self.agent.poll() is None
        self.stop_agent()
        self.agent = None
        return lived

    def close(self) -> None:
        if self.agent is not None:
            self.stop_agent()
        self.kubelet.stop()
        self.machine.remove()


@pytest.fixture
def node() -> Iterator[KilledNode]:
    # Short, whatever the test is called: a socket's path has room for 107 bytes.
    with tempfile.TemporaryDirectory(prefix="vgpu-", dir="/tmp") as base:
        node = KilledNode(Path(base))
        try:
            node.start_agent()
            node.wait_registered([CORE, MEMORY])
            yield node
        finally:
            node.close()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_kills_at_random_instants_change_no_promise(node: KilledNode) -> None:
    history = UnderKills(node, 11, Life(2 * KILLS, weights=WEIGHTS))
    history.run()

    assert history.kills == KILLS
