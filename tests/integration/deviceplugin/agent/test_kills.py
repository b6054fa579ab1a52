"""The agent killed at random instants of random histories: no slice twice, none lost."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from deviceplugin.testing import AdmittedPod, StandInKubelet
from libvgpu.sim.machine import Machine
from libvgpu.sim.profiles import PROFILES
from support import IS_LONG, ROOT
from support.histories import CORE, MEMORY, MEMORY_UNITS, Asked, History, Life
from support.in_process_node import GIB, wait_until_lost
from support.waiting import PATIENCE_S

KILLS = 200 if IS_LONG else 6
STEPS = 1200 if IS_LONG else 60  # about one of three is a chance to kill
LONGEST_DELAY_S = 0.04  # an admission lasts 5 to 30 ms
CONFIG = "version: v1\nsharing: {fractional: [{family: vgpu, memoryUnit: 1Gi}]}\n"


class KilledNode:
    """A kubelet stand-in here, and the agent as a process of its own on a simulated machine."""

    def __init__(self, base: Path) -> None:
        self.base, self.run_dir = base, base / "r"
        profile = replace(PROFILES["t4"], memory_bytes=MEMORY_UNITS * GIB)
        self.machine = Machine.create([profile] * 3, base / "machine")
        self.kubelet = StandInKubelet(base / "k", seed=3, makes_pod_directories=True)
        self.kubelet.start()
        (base / "config.yaml").write_text(CONFIG)
        self.agent: subprocess.Popen[bytes] | None = None

    def start_agent(self) -> None:
        with open(self.base / "log", "ab") as log:
            self.agent = subprocess.Popen(
                [sys.executable, "-m", "deviceplugin", f"--config={self.base / 'config.yaml'}",
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

    def close(self) -> None:
        self.stop_agent()
        self.kubelet.stop()
        self.machine.remove()


class UnderKills(History):
    """A history in which the agent is killed during admissions and starts."""

    kills = 0

    def admit(self, init: list[Asked], containers: list[Asked]) -> None:
        self.interrupted(lambda: super(UnderKills, self).admit(init, containers))

    def start(self, pod: AdmittedPod) -> None:
        self.interrupted(lambda: super(UnderKills, self).start(pod))

    def interrupted(self, step: object) -> None:
        if self.kills >= KILLS or self.chance.random() < 0.5:
            self.may_be_cut_off = False
            step()  # type: ignore[operator]
            return
        self.kills += 1
        self.may_be_cut_off = True
        assert isinstance(self.node, KilledNode) and self.node.agent is not None
        delay_s = self.chance.random() * LONGEST_DELAY_S
        killer = threading.Timer(delay_s, self.node.agent.send_signal, [signal.SIGKILL])
        killer.start()
        try:
            step()  # type: ignore[operator]
        finally:
            killer.join()
            self.step("restart agent")


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


@pytest.mark.timeout(900)
def test_kills_at_random_instants_change_no_promise(node: KilledNode) -> None:
    weights = {"pair": 40, "several": 8, "init": 10, "end": 35, "start": 40}

    history = UnderKills(node, 11, Life(STEPS, weights=weights))  # type: ignore[arg-type]
    history.run()

    assert history.kills == KILLS
    assert history.started > KILLS / 2
