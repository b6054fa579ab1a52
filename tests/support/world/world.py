"""A world: what is made within `world` takes its turns as a seed says.

Agent, kubelet stand-in and the waits of a test (`waiting`) take clock, locks and threads from
`deviceplugin.runtime`, and gRPC is a wire of the world. The agent's HTTP servers are left out:
`vgpuctl` gets the answers of their pages without them.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from werkzeug.test import Client

from deviceplugin import agent, runtime
from deviceplugin.http.agent_state import AgentState
from deviceplugin.http.control_api import ControlApi
from deviceplugin.http.metrics import Metrics
from deviceplugin.pages import AGENT_SOCKET
from deviceplugin.settings import AgentSettings
from vgpuctl import agent_client

from .turns import Turns
from .waits import WorldRuntime
from .wire import Wire


class World:
    """Who takes turns, and how they reach each other.

    Attributes:
        pages: what agents that run say, by the path of their sockets.
        said: the state of the agent that was started last; None of one that still starts.
    """

    def __init__(self, seed: int, note: Callable[[bytes], object] = lambda answer: None) -> None:
        """Has nobody in it.

        Args:
            note: is given each answer of a server that is not the test's own.
        """
        self.turns = Turns(seed)
        self.runtime = WorldRuntime(self.turns)
        self.wire = Wire(self.turns, note)
        self.pages: dict[Path, ControlApi] = {}
        self.said: AgentState | None = None

    def hold(self, patch: pytest.MonkeyPatch) -> None:
        """Puts it in the place of threads, gRPC and HTTP, for as long as the patch lasts."""
        patch.setattr(runtime, "_in_use", self.runtime)
        patch.setattr(grpc, "server", self.wire.server)
        patch.setattr(grpc, "insecure_channel", self.wire.insecure_channel)
        patch.setattr(agent, "_serve_pages", self._take_pages)
        patch.setattr(agent_client, "UnixConnection", lambda path, _: _Connection(self, path))

    def _take_pages(
        self,
        settings: AgentSettings,
        service: Any,
        metrics: Metrics,
        said: AgentState,
        ends: ExitStack,
    ) -> str:
        self.said = said
        self.pages[settings.run_dir / AGENT_SOCKET] = ControlApi(
            service.enforcement.set_override, said.state, said.config, metrics.page
        )
        ends.callback(self.pages.pop, settings.run_dir / AGENT_SOCKET, None)
        return "none"


class _Connection:
    """What `vgpuctl` asks an agent by; `http.client` without a connection."""

    def __init__(self, world: World, path: Path) -> None:
        self._world, self._path = world, path

    def request(self, method: str, path: str, body: str | None = None) -> None:
        self._world.turns.point("page", path)
        page = self._world.pages.get(self._path)
        if page is None:
            raise ConnectionRefusedError(111, "Connection refused")
        self._answer = Client(page).open(path, method=method, data=body)

    def getresponse(self) -> "_Connection":
        return self

    @property
    def status(self) -> int:
        return self._answer.status_code

    def read(self, most: int) -> bytes:
        return bytes(self._answer.data[:most])

    def close(self) -> None:
        """There is nothing to close."""


@contextmanager
def world(patch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world for what is made within this, of the seed ``VGPU_SEED`` or of the same one always."""
    made = World(int(os.environ.get("VGPU_SEED") or 1))
    with patch.context() as held:
        made.hold(held)
        try:
            yield made
        finally:
            made.turns.close()
