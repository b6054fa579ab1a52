"""The agent's process killed at random instants of random histories: no slice twice, none lost.

An instant is a matter of time, so a seed does not replay a life here. In the gate the agent is
killed at counted changes of its files (`test_histories.py`), and its process, once, in
`recovery/test_recovery.py`.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from libvgpu.sim.profiles import PROFILES
from support.node.in_process import GIB
from support.node.simulated import SimulatedNode
from support.waiting import PATIENCE_S, wait_until
from support.world.histories import CORE, MEMORY, MEMORY_UNITS, Life
from support.world.kill_histories import UnderKills
from support.world.lives import KILLS as WEIGHTS
from vgpuctl.agent_client import agent_report

KILLS = 200


class KilledNode(SimulatedNode):
    """One whose agent is killed at any moment."""

    def __init__(self, base: Path) -> None:
        profile = replace(PROFILES["t4"], memory_bytes=MEMORY_UNITS * GIB)
        self.killer: threading.Timer | None = None
        self.hides_record = False
        super().__init__(base, [profile] * 3)

    def start_agent(self, waits: bool = False) -> None:
        super().start_agent(waits)

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
        self.stop_agent(signal.SIGKILL)
        return lived


@pytest.fixture
def node(short_path: Path) -> Iterator[KilledNode]:
    with KilledNode(short_path) as node:
        node.wait_registered([CORE, MEMORY])
        yield node


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_kills_at_random_instants_change_no_promise(node: KilledNode) -> None:
    history = UnderKills(node, 11, Life(2 * KILLS, weights=WEIGHTS))
    history.run()

    assert history.kills == KILLS
