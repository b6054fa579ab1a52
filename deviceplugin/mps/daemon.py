"""One GPU's MPS control daemon with its server: started, adopted, asked, put right, ended.

The daemon is detached from the runner unless they are tied, so it outlives one that is killed; the
next runner knows it by a variable in its environment, by its user and by its mounts (`is_ours`). It
serves clients of all users, and its server is started at once: what is in its way (another daemon)
shows before a container starts, and not in it. Used by one thread.
"""

import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from deviceplugin.log import event
from deviceplugin.store.container_labels import ContainerLabels
from libvgpu.errors import MpsError, MpsSilentError

from .control_pipe import READY_COMMAND, TOOL, ask, daemon_environment, tool_path
from .daemon_home import DaemonHome
from .processes import PidfdProcess, is_ours, parent_of

# Becomes the daemon once the kernel has promised to end it with its parent. A program of its own,
# since between fork and exec of a process with threads nothing may be done.
_TIED = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
_MARK = "VGPU_MPS_PIPE"
_PID_FILE = f"{TOOL}.pid"
_QUIT_S = 3
_END_S = 5.0
#: A daemon that answers later than this loses its files to ours.
_STRANGER_S = 10.0
#: A daemon that is silent for so long is not healthy. On a node whose processors are all taken its
#: tool needs seconds for what takes milliseconds; who waits less makes an outage of that.
SILENT_S = 20.0
_WHOLE_PERCENT = 100
_MIB = 1 << 20


class Daemon:
    """The control daemon of one GPU, whoever of our runners started it."""

    def __init__(
        self,
        run_dir: Path,
        uuid: str,
        memory_bytes: int,
        tied: bool = False,
        is_given_up: Callable[[], bool] = lambda: False,
        root: str = "",
    ) -> None:
        """Starts nothing.

        Args:
            memory_bytes: of the GPU; what a client may pin where nothing says less.
            root: see `DaemonHome`.
            tied: what is started ends with this process, however that ends.
            is_given_up: whether it is not wanted any more, so that no answer is worth waiting for.
        """
        self._tied, self._is_given_up = tied, is_given_up
        self.uuid = uuid
        self._run_dir, self._memory_mib = run_dir, memory_bytes // _MIB
        self._home = DaemonHome(run_dir, uuid, root)
        self._pipe = self._home.pipe
        self.process: PidfdProcess | None = None
        self.server: PidfdProcess | None = None
        self._settings = ""

    def adopt(self, pid: int) -> bool:
        """Takes over the daemon that an earlier runner left; returns whether there is one.

        Args:
            pid: what the earlier runner wrote down, 0 where nothing; then the daemon's own file is
                asked, which a container may have changed.
        """
        for candidate in (pid, self._pid_in_file()):
            if candidate <= 0 or not is_ours(candidate, f"{_MARK}={self._pipe}"):
                continue
            try:
                process = PidfdProcess(candidate)
            except MpsError:
                continue
            if is_ours(candidate, f"{_MARK}={self._pipe}"):  # still the same one
                self.process = process
                return True
            process.close()
        return False

    def prepare(self, may_move: bool = False) -> None:
        """Makes the directories; removes what a dead daemon left in the pipe directory.

        The directory itself stays: containers have it mounted.

        Args:
            may_move: no container has; then it goes where it is to be now.

        Raises:
            MpsError: somebody else's daemon answers there, or it cannot be cleared.
        """
        try:
            self._home.make(may_move)
            ContainerLabels().mark(self._pipe)  # sockets that the daemon makes there inherit it
            left = list(os.scandir(self._pipe))
            if left and self._stranger():
                raise MpsError(
                    f"an MPS daemon that this runner did not start answers in {self._pipe}",
                    hint=f"end it: echo quit | CUDA_MPS_PIPE_DIRECTORY={self._pipe} {TOOL}",
                )
            for entry in left:
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)
        except OSError as error:
            where = error.filename or self._pipe  # a call on a descriptor names no file
            raise MpsError(f"{where} cannot be prepared: {error.strerror}") from None
        if left:
            event(
                logging.WARNING,
                "removed what a dead MPS daemon left in its pipe directory",
                gpu=self.uuid,
                files=len(left),
            )

    def start(self) -> None:
        """Starts a new one where `prepare` found nothing in the way; it is not ready yet.

        Raises:
            MpsError: there is no tool, or it cannot be run.
        """
        command = [tool_path(), "-f", "-multiuser-server"]
        if self._tied:
            command = [sys.executable, "-c", _TIED, str(os.getpid()), *command]
        try:
            with open(self._pipe.parent / "log" / "stderr.log", "ab") as output:
                child = subprocess.Popen(
                    command,
                    env={**daemon_environment(self._run_dir, self.uuid), _MARK: str(self._pipe)},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,  # a signal to our process group is none for clients
                )
        except OSError as error:
            raise MpsError(
                f"the MPS daemon of GPU {self.uuid} cannot be started: {error}"
            ) from None
        self.process = PidfdProcess(child.pid)
        child.returncode = 0  # `PidfdProcess` collects it
        event(logging.INFO, "MPS daemon started", gpu=self.uuid, pid=child.pid)

    def why_silent(self) -> str:
        """Returns why it does not answer, empty where it does.

        It is not asked before its sockets are there: the tool of each question would take the
        processor from the daemons that start.

        Raises:
            MpsError: it has ended.
        """
        assert self.process is not None
        if self.process.ended():
            raise MpsError(
                f"the MPS daemon of GPU {self.uuid} ended at once; look into "
                f"{self._pipe.parent / 'log'}"
            )
        if not self.pipe_is_there():
            return f"{self._pipe} is empty"
        try:
            float(self._ask(READY_COMMAND))
        except (MpsError, ValueError) as error:
            return str(error)
        return ""

    def find_server(self) -> bool:
        """Looks for the server; one that is no child of the daemon is none (`control_pipe`).

        Raises:
            MpsSilentError: it does not answer, so there may be one.
        """
        assert self.process is not None
        try:
            listed = self._ask("get_server_list").split()
        except MpsSilentError:
            raise
        except MpsError:
            return False
        for word in listed:
            pid = int(word) if word.isdecimal() and len(word) < 10 else 0
            if pid and parent_of(pid) == self.process.pid:
                try:
                    server = PidfdProcess(pid)
                except MpsError:
                    continue
                if self.server is not None:
                    self.server.close()
                self.server = server
                return True
        return False

    def start_server(self) -> None:
        """Has it run a server where `find_server` found none, and finds that.

        Raises:
            MpsError: none comes up, with the reason.
        """
        reason = "it gives no reason"
        try:
            self._ask(f"start_server -uid {os.geteuid()}")
        except MpsError as error:
            reason = error.message
        if not self.find_server():
            raise MpsError(
                f"no MPS server starts on GPU {self.uuid}, perhaps because another MPS daemon "
                f"or a process has that GPU: {reason}"
            )

    def settle(self) -> None:
        """Gives daemon and server the settings that every client's own values lie below.

        Raises:
            MpsError: it does not take them.
        """
        server = self._server_pid()
        limit = f"{self._memory_mib}M"
        self._ask(
            [
                f"set_default_active_thread_percentage {_WHOLE_PERCENT}",
                f"set_default_device_pinned_mem_limit 0 {limit}",
                f"set_active_thread_percentage {server} {_WHOLE_PERCENT}",
                f"set_device_pinned_mem_limit {server} 0 {limit}",
            ]
        )
        self._settings = self._read_settings()

    def changed_settings(self) -> str:
        """Returns what of the settings is not as `settle` left it, empty where all is.

        Raises:
            MpsError: it does not answer.
        """
        now = self._read_settings()
        return "" if now == self._settings else f"{self._settings!r} became {now!r}"

    def server_status(self) -> str:
        """Returns the server's status as the daemon says it.

        Raises:
            MpsError: it does not answer, or does not know that question.
        """
        return self._ask(f"get_server_status {self._server_pid()}", self.server)

    def stop(self) -> None:
        """Ends daemon and server: asked first, then made to."""
        if self.process is None:
            return
        if not self.process.ended():
            try:
                ask(self._run_dir, self.uuid, f"quit -t {_QUIT_S}", _QUIT_S + _END_S)
            except MpsError as error:
                event(
                    logging.WARNING,
                    "MPS daemon ignored quit",
                    gpu=self.uuid,
                    reason=error.message,
                )
                self.process.send(signal.SIGTERM)
            if not self.process.ended(_END_S):
                self.process.send(signal.SIGKILL)
                self.process.ended(_END_S)
            event(logging.INFO, "MPS daemon stopped", gpu=self.uuid, pid=self.process.pid)
        self.forget(end_server=True)

    def forget(self, end_server: bool = False) -> None:
        """Lets go of both.

        Args:
            end_server: it is not to outlive its daemon.
        """
        if self.server is not None:
            if end_server and not self.server.ended(_QUIT_S):
                self.server.send(signal.SIGKILL)
                self.server.ended(_END_S)
            self.server.close()
        if self.process is not None:
            self.process.close()
        self.process = self.server = None

    def pipe_is_there(self) -> bool:
        """Returns whether clients find the pipe directory, and what the daemon has made there.

        Who empties the run directory leaves a pipe directory that is mounted, without its files.
        """
        try:
            return bool(os.listdir(self._pipe))
        except OSError:
            return False

    def has_ended(self) -> bool:
        """Returns whether daemon or server are not there, so that no answer can be expected."""
        return any(each is None or each.ended() for each in (self.process, self.server))

    def _ask(self, commands: str | Sequence[str], server: PidfdProcess | None = None) -> str:
        """Waits as long for an answer as one may take, but not for one that cannot come.

        Args:
            server: nor for one that is not worth having once this has ended.
        """
        watched = [each for each in (self.process, server) if each is not None]
        return ask(
            self._run_dir,
            self.uuid,
            commands,
            SILENT_S,
            lambda: self._is_given_up() or any(each.ended() for each in watched),
        )

    def _server_pid(self) -> int:
        assert self.server is not None
        return self.server.pid

    def _read_settings(self) -> str:
        server = self._server_pid()
        return self._ask(
            [
                READY_COMMAND,
                "get_default_device_pinned_mem_limit 0",
                f"get_active_thread_percentage {server}",
                f"get_device_pinned_mem_limit {server} 0",
            ],
            self.server,
        )

    def _pid_in_file(self) -> int:
        try:
            with open(self._pipe / _PID_FILE, "rb", opener=_without_links) as file:
                return int(file.read(16) or b"")  # None: of a FIFO that is open and empty
        except (OSError, ValueError):
            return 0

    def _stranger(self) -> bool:
        try:
            float(ask(self._run_dir, self.uuid, READY_COMMAND, _STRANGER_S))
        except (MpsError, ValueError):
            return False
        return True


def _without_links(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
