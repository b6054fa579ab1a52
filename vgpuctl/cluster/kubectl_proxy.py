"""Reads of the API server through one `kubectl proxy`, which knows every kind of credentials.

It listens on a Unix socket in a directory that only this user may enter, passes on nothing but
reads, and ends with us, also if we are killed. So one kubectl is started for all nodes. Any number
of threads may read at once: each read has a connection of its own.
"""

import contextlib
import ctypes
import http.client
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from pathlib import Path

from libvgpu.errors import VgpuError

from ..unix_http import UnixConnection
from .port_forward import through
from .refusals import KUBECTL_HINT, ApiRefusal, NoAnswer, refusal

_START_S, _LOOK_AGAIN_S, _STOP_S = 20.0, 0.005, 2.0
_MOST_BYTES = 32 << 20
_PIECE_BYTES = 1 << 16
_PR_SET_PDEATHSIG = 1
_WRITES = "POST,PUT,PATCH,DELETE,CONNECT"


class ApiReader:
    """Reads paths of the API server.

    Attributes:
        timeout_s: that one read may take.
    """

    def __init__(self, socket_path: Path, log: Path, timeout_s: float) -> None:
        """Reads nothing yet.

        Args:
            socket_path: where the proxy listens.
            log: what it writes to stderr.
        """
        self._socket, self._log, self.timeout_s = socket_path, log, timeout_s

    def get(self, path: str, page: str = "") -> bytes:
        """Returns the content of a path.

        Args:
            page: what is read at the port that the path leads to; empty: it is what is read.

        Raises:
            ApiRefusal: it may not be read, or the API server cannot be reached.
            NoAnswer: there is no such thing, or who should answer does not.
        """
        ends_s = time.monotonic() + self.timeout_s
        connection = UnixConnection(self._socket, self.timeout_s)
        try:
            asked = through(connection, path) if page else connection
            asked.request("GET", page or path)
            answer = asked.getresponse()
            body = _content(connection, answer, ends_s)
        except TimeoutError:
            raise NoAnswer(f"no answer within {self.timeout_s:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            raise ApiRefusal(
                f"kubectl proxy ended: {_last_line(self._log) or error}", KUBECTL_HINT
            ) from None
        finally:
            connection.close()
        if answer.status == HTTPStatus.OK:
            return body
        raise refusal(answer.status, body, path)


def _content(
    connection: http.client.HTTPConnection, answer: http.client.HTTPResponse, ends_s: float
) -> bytes:
    """Returns an answer's body; who sends it drop by drop has no longer than who sends nothing.

    Raises:
        TimeoutError: the time is over.
        NoAnswer: it is longer than any page of ours.
    """
    found = bytearray()
    while piece := answer.read1(_PIECE_BYTES):
        found += piece
        if len(found) > _MOST_BYTES:
            raise NoAnswer(f"its answer is longer than {_MOST_BYTES >> 20} MiB")
        left_s = ends_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        if connection.sock is not None:
            connection.sock.settimeout(left_s)
    return bytes(found)


@contextlib.contextmanager
def api_reader(kubectl: Sequence[str], timeout_s: float) -> Iterator[ApiReader]:
    """Gives a reader; its kubectl ends with the context.

    Args:
        kubectl: the program and its options, which say where the API server is and who asks.

    Raises:
        VgpuError: there is no kubectl, or it does not start.
    """
    with tempfile.TemporaryDirectory(prefix="kubectl-vgpu-") as name:
        path, log = Path(name) / "api.sock", Path(name) / "log"
        process = _started(kubectl, path, log)
        try:
            _wait_until_it_listens(process, path, log)
            yield ApiReader(path, log, timeout_s)
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _started(kubectl: Sequence[str], path: Path, log: Path) -> subprocess.Popen[bytes]:
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    argv = [*kubectl, "proxy", f"--unix-socket={path}", f"--reject-methods={_WRITES}"]
    # An API server may be one path of another server, and kubectl leaves it out unless it is told.
    argv.append("--append-server-path")
    try:
        with open(log, "wb") as file:
            return subprocess.Popen(
                argv,
                stdout=file,
                stderr=file,
                preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0),
            )
    except OSError as error:
        raise VgpuError(
            f"{kubectl[0]} cannot be started: {error.strerror}",
            "install kubectl, and see that PATH has it",
        ) from None


def _wait_until_it_listens(process: subprocess.Popen[bytes], path: Path, log: Path) -> None:
    ends_s = time.monotonic() + _START_S
    while True:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            try:
                client.connect(str(path))
                return
            except OSError:
                pass
        if process.poll() is not None:
            said = _last_line(log) or f"exit status {process.returncode}"
            raise VgpuError(f"kubectl proxy does not start: {said}", KUBECTL_HINT)
        if time.monotonic() > ends_s:
            raise VgpuError(f"kubectl proxy does not listen within {_START_S:.0f} s", KUBECTL_HINT)
        time.sleep(_LOOK_AGAIN_S)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    told = [line for line in lines if not line.startswith("Starting to serve")]
    return told[-1].removeprefix("error: ") if told else ""
