"""The extender as a process, over HTTP, that may be killed and started again at any moment."""

import http.client
from pathlib import Path

from benchmarks.simulated_cluster.api_server import SimulatedApiServer
from benchmarks.simulated_cluster.extender_client import HttpSender
from benchmarks.simulated_cluster.extender_process import ExtenderProcess
from support import warm


class ExtenderOverHttp:
    """Use `send` as what sends calls; `stop` it in the end.

    Attributes:
        restarts: how often it was killed.
    """

    def __init__(self, server: SimulatedApiServer, folder: Path, namespace: str) -> None:
        """Starts it, and waits until it knows the cluster.

        Args:
            folder: for its logs.
            namespace: of the agents.

        Raises:
            VgpuError: it does not start.
        """
        self._server, self._folder, self._namespace = server, folder, namespace
        self.restarts = 0
        self._start()

    def restart(self) -> None:
        """Kills it in the midst of whatever it does, and starts another."""
        self.restarts += 1
        self.stop()
        self._start()

    def send(self, verb: str, body: bytes) -> bytes:
        """Makes a call; one that is not answered is an OSError."""
        try:
            return self._sender(verb, body)
        except http.client.HTTPException as error:
            raise OSError(f"{verb} is not answered: {error}") from error

    def stop(self) -> None:
        """Kills it."""
        self._process.stop()

    def _start(self) -> None:
        log = self._folder / f"extender-{self.restarts}.log"
        self._process = ExtenderProcess(self._server, log, self._namespace, warm.start)
        self._sender = HttpSender("127.0.0.1", self._process.port)
