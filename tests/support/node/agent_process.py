"""A node whose agent is a process of its own, so that it can be killed.

``python -m support.node.agent_process SHIM CONFIG KUBELET_DIR STATE_DIR RUN_DIR`` is that process.
"""

import os
import re
import signal
import sys
import threading
import urllib.request
from pathlib import Path

from deviceplugin import agent, log
from deviceplugin.kube.api_client import ApiServer
from deviceplugin.settings import AgentSettings
from libvgpu import artifacts
from support import ROOT, warm
from support.node.in_process import GivenGpus, InProcessNode, hurry, wait_until_lost
from support.waiting import PATIENCE_S
from support.warm_program import Program

#: The environment's variable for the directory of the agent's service account, if it has one.
SERVICE_ACCOUNT = "TEST_SERVICE_ACCOUNT"


class ProcessNode(InProcessNode):
    """A kubelet stand-in here, and an agent in another process."""

    def __init__(self, base: Path, seed: int = 1) -> None:
        super().__init__(base, seed)
        self.log = base / "agent.log"
        self.process: Program | None = None

    def start_agent(self) -> None:
        paths = (artifacts.SHIM_PATH, self.config, self.kubelet_dir, self.state_dir, self.run_dir)
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
        with open(self.log, "ab") as output:
            self.process = warm.start(
                ["-m", "support.node.agent_process", *map(str, paths)],
                environment,
                output,
                like="deviceplugin",
            )

    def page(self, path: str) -> str:
        """Returns one of the pages of the agent that was started last."""
        address = re.findall(r"metrics=(\S+)", self.log.read_text())[-1]
        with urllib.request.urlopen(f"http://{address}{path}", timeout=PATIENCE_S) as page:
            return str(page.read(), "utf-8")

    def kill_agent(self) -> None:
        """Ends the agent with SIGKILL; its sockets and files stay as they are."""
        self._end(signal.SIGKILL)

    def stop_agent(self) -> None:
        self._end(signal.SIGTERM)
        wait_until_lost(self.kubelet)

    def _end(self, number: int) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(PATIENCE_S)


def main() -> None:
    """Runs the agent until SIGTERM."""
    log.set_up()
    hurry()
    shim, config, kubelet_dir, state_dir, run_dir = map(Path, sys.argv[1:])
    artifacts.SHIM_PATH = shim
    account = os.environ.get(SERVICE_ACCOUNT)
    if account is not None:
        api = ApiServer.from_environment(os.environ, Path(account))
        ApiServer.from_environment = lambda environ: api  # type: ignore[method-assign, assignment, misc]
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    settings = AgentSettings(
        config, kubelet_dir, state_dir, run_dir, "127.0.0.1:0", "test-node", spawn_mps=False
    )
    agent.run(settings, GivenGpus(), stop)


if __name__ == "__main__":
    main()
