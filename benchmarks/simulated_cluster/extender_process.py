"""The real extender (``python -m deviceplugin.scheduler``) as a process, over plain HTTP; or over
TLS, and then it asks for certificates.
"""

import contextlib
import http.client
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

import libvgpu
from libvgpu.errors import VgpuError

from .api_server import SimulatedApiServer
from .extender_client import ExtenderClient, HttpSender

_ROOT = Path(libvgpu.__file__).resolve().parent.parent
_STARTED = re.compile(r'msg="scheduler extender started" address=(\d+) probes=(\d+)')
_READY_S, _END_S, _POLL_S, _LAST_LINES = 60.0, 10.0, 0.005, 5


class Program(Protocol):
    """What is asked of a running program, as `subprocess.Popen` has it."""

    pid: int

    def poll(self) -> int | None: ...
    def kill(self) -> None: ...
    def wait(self, timeout: float | None = None) -> int: ...


def start_python(words: Sequence[str], env: Mapping[str, str], log: IO[bytes]) -> Program:
    """Starts a Python program."""
    return subprocess.Popen([sys.executable, *words], env=env, cwd=_ROOT, stderr=log)


class ExtenderProcess:
    """One run of it.

    Attributes:
        port: where it listens.
        probes: where it is asked whether it is ready.
        started_s: on the monotonic clock.
        ready_after_s: how long after that it knew nodes and pods.
    """

    def __init__(
        self,
        server: SimulatedApiServer,
        log: Path,
        namespace: str,
        start: Callable[[Sequence[str], Mapping[str, str], IO[bytes]], Program] = start_python,
        tls: Path | None = None,
    ) -> None:
        """Starts it, and waits until it answers from what it knows.

        Args:
            server: what it finds as the cluster's API server.
            namespace: of the agents.
            start: starts a Python program of these words and variables, which says all to a file.
            tls: directory of its certificate, by which it knows callers, too.

        Raises:
            VgpuError: it ended, or is not ready in time.
        """
        self._log = log
        self.started_s = time.monotonic()
        secure = ["--plain-http"]
        if tls is not None:
            secure = [f"--tls-dir={tls}", f"--client-ca={tls / 'tls.crt'}"]
        with open(log, "wb") as file:
            self._process = start(
                ["-m", "deviceplugin.scheduler", "--address=127.0.0.1:0",
                 "--probe-address=127.0.0.1:0", *secure, f"--namespace={namespace}",
                 "--no-leader-elect", f"--service-account={server.account}"],
                server.environment() | {"PYTHONPATH": str(_ROOT)}, file,
            )  # fmt: skip
        self.port = self.probes = 0
        while not self.port or not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > self.started_s + _READY_S:
                words = log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
                self.stop()
                raise VgpuError(f"the extender is not ready: {' | '.join(words)}")
            time.sleep(_POLL_S)
            found = _STARTED.search(log.read_text(errors="replace"))
            self.port, self.probes = map(int, found.groups()) if found else (0, 0)
        self.ready_after_s = time.monotonic() - self.started_s

    @property
    def pid(self) -> int:
        """Its process number."""
        return self._process.pid

    def sender(self) -> HttpSender:
        """Returns what sends calls to it."""
        return HttpSender("127.0.0.1", self.port)

    def client(self) -> ExtenderClient:
        """Returns what makes calls to it."""
        return ExtenderClient(self.sender())

    def stop(self) -> None:
        """Ends it at once."""
        self._process.kill()
        self._process.wait(_END_S)

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.probes, timeout=_READY_S)
        with contextlib.closing(connection), contextlib.suppress(OSError):
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        return False


@contextlib.contextmanager
def running_extender(
    server: SimulatedApiServer, base: Path, namespace: str, tls: Path | None = None
) -> Iterator[ExtenderProcess]:
    """Gives an extender that is ready, and ends it.

    Raises:
        VgpuError: it does not start.
    """
    found = ExtenderProcess(server, base / "extender.log", namespace, tls=tls)
    try:
        yield found
    finally:
        found.stop()
