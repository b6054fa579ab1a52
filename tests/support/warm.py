"""Python programs of tests that begin where others have done their imports.

What a CUDA client, `vgpuctl` or an agent imports takes most of its life. So a server does that
once, and each program is a child that it forks before any of it has run: no driver is loaded by
then, gRPC has no thread, and no variable but the loader's was read. There is one server for each
way to load libraries, since a process keeps the loader's variables that it began with; programs
whose libraries are made by their test start by themselves.

`run` runs a program to its end. `start` starts an agent, which a test may signal and wait for. Some
tests start agents by `subprocess.Popen`, as their users do: whoever reads a command line or the
first environment in ``/proc`` finds the server's in a forked one.
"""

import atexit
import contextlib
import ctypes
import gc
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from support import ROOT
from support.waiting import PATIENCE_S

_LOADED = {
    "client": ("json", "threading", "support.cuda_client"),
    "vgpuctl": ("vgpuctl",),
    "agent": ("deviceplugin.__main__", "deviceplugin.mps.__main__", "support.agent_process"),
}
_OF_THE_LOADER = ("LD_", "PYTHON")
_UNTOLD = ("VGPU_TEST_RUN",)  # so that leftovers.py does not take the server for a test's
_PR_SET_PDEATHSIG = 1
_lock = threading.Lock()
_servers: dict[tuple[object, ...], tuple[socket.socket, "subprocess.Popen[bytes]"]] = {}
_started: set["Program"] = set()


class Program(subprocess.Popen[Any]):
    """A forked program; the server waits for it and says here how it ended."""

    def __init__(self, words: Sequence[str], pid: int, handle: int, ended: IO[bytes]) -> None:
        self.args, self.pid, self.returncode = [sys.executable, *words], pid, None
        self.stdin = self.stdout = self.stderr = None
        self._handle, self._ended = handle, ended

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        status = self._look(timeout)
        if status is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return status

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, sig)

    def _look(self, timeout_s: float | None) -> int | None:
        if self.returncode is None and select.select([self._ended], [], [], timeout_s)[0]:
            # A server that was killed says nothing, and its programs were killed with it.
            self.returncode = int(self._ended.read() or -signal.SIGKILL)
            self._ended.close()
            os.close(self._handle)
            _started.discard(self)
        return self.returncode


def running() -> set[int]:
    """Returns the process ids of the programs that were started here and have not ended."""
    return {program.pid for program in set(_started) if program.poll() is None}


def run(
    words: Sequence[str],
    env: Mapping[str, str],
    *,
    cwd: Path = ROOT,
    told: str = "",
) -> "subprocess.CompletedProcess[str]":
    """Runs a Python program to its end, as `subprocess.run` does.

    Args:
        words: behind ``python``: ``-c`` and its text, or ``-m`` and a name; then its arguments.
        env: its environment.
        cwd: where it runs.
        told: what it reads from stdin.

    Raises:
        TimeoutExpired: it has not ended after `PATIENCE_S`, and was killed.
    """
    if not all(
        Path(folder).is_relative_to(ROOT)
        for folder in env.get("LD_LIBRARY_PATH", str(ROOT)).split(os.pathsep)
    ):
        return subprocess.run(
            [sys.executable, *words], cwd=cwd, env=env, input=told, capture_output=True, text=True,
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    with contextlib.ExitStack() as stack:
        files = [
            stack.enter_context(os.fdopen(os.memfd_create(name), "w+", encoding="utf-8"))
            for name in ("stdin", "stdout", "stderr")
        ]
        files[0].write(told)
        files[0].seek(0)
        kind = "client" if words[0] == "-c" else "vgpuctl"
        program = _fork(kind, words, env, cwd, [file.fileno() for file in files], group=False)
        try:
            status = program.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()
            raise
        for file in files:
            file.seek(0)
        return subprocess.CompletedProcess(words, status, files[1].read(), files[2].read())


def start(
    words: Sequence[str],
    env: Mapping[str, str],
    stderr: IO[Any],
    *,
    cwd: Path = ROOT,
    group: bool = False,
) -> Program:
    """Starts an agent, as `subprocess.Popen` does.

    Args:
        words: as for `run`.
        stderr: the file of its log.
        group: whether it leads a process group.
    """
    with open(os.devnull) as nothing:
        fds = [nothing.fileno(), 1, stderr.fileno()]
        return _fork("agent", words, env, cwd, fds, group=group)


def _fork(
    kind: str, words: Sequence[str], env: Mapping[str, str], cwd: Path, fds: list[int],
    *, group: bool,
) -> Program:  # fmt: skip
    key = kind, *sorted(pair for pair in env.items() if pair[0].startswith(_OF_THE_LOADER))
    asked = json.dumps([list(words), dict(env), str(cwd), group]).encode()
    read, write = os.pipe()
    try:
        with _lock:
            line, _ = _servers.get(key) or _servers.setdefault(key, _start(kind, env))
            socket.send_fds(line, [asked], [*fds, write])
            pid, handles, _, _ = socket.recv_fds(line, 100, 1)
    finally:
        os.close(write)
    program = Program(words, int(pid), handles[0], os.fdopen(read, "rb"))
    _started.add(program)
    return program


def used_seconds() -> float:
    """Returns the processor time of the servers and of all programs that have ended there."""
    stats = (Path(f"/proc/{server.pid}/stat").read_text() for _, server in _servers.values())
    ticks = sum(int(field) for stat in stats for field in stat.rpartition(")")[2].split()[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def _start(kind: str, env: Mapping[str, str]) -> tuple[socket.socket, "subprocess.Popen[bytes]"]:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    here.settimeout(PATIENCE_S)  # a server that hangs fails its test
    code = f"from support.warm import serve; serve({there.fileno()}, {kind!r})"
    path = os.pathsep.join([env.get("PYTHONPATH", ""), str(ROOT / "tests"), str(ROOT)])
    with there:
        server = subprocess.Popen(
            [sys.executable, "-c", code], cwd=ROOT, pass_fds=[there.fileno()],
            env={key: value for key, value in env.items() if key not in _UNTOLD}
            | {"PYTHONPATH": path.lstrip(os.pathsep)},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
    return here, server


def serve(number: int, kind: str) -> None:
    """The server, and in the children that it forks the programs."""
    for name in _LOADED[kind]:
        package = import_module(name)
        for found in pkgutil.walk_packages(getattr(package, "__path__", ()), f"{name}."):
            if not found.name.endswith("__main__"):
                import_module(found.name)
        if kind == "agent":
            del sys.modules[name]  # which runs as ``__main__``
    line = socket.socket(fileno=number)
    gc.collect()
    gc.freeze()  # what the collector does not touch, a child need not copy
    asked, fds = _serve_until_child(line)
    words, env, where, group = json.loads(asked)
    if kind == "agent":
        _become(words, env, where, fds, group)
    else:
        _end_as(lambda: _become(words, env, where, fds, group))


def _serve_until_child(line: socket.socket) -> tuple[bytes, list[int]]:
    """Forks what is asked for, and says how it ended; returns in each child."""
    running: dict[int, tuple[int, int]] = {}  # by its descriptor: pid, and where its end is told
    while True:
        ready, _, _ = select.select([line.fileno(), *running], [], [])
        for handle in running.keys() & set(ready):
            pid, told = running.pop(handle)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            with contextlib.suppress(OSError):  # nobody asks any more
                os.write(told, str(status).encode())
            os.close(told)
            os.close(handle)
        if line.fileno() not in ready:
            continue
        asked, fds, _, _ = socket.recv_fds(line, 1 << 20, 4)
        if not asked:
            os._exit(0)
        child = os.fork()
        if child == 0:
            line.close()
            for handle, (_, told) in running.items():
                os.close(handle)
                os.close(told)
            os.close(fds.pop())
            return asked, fds
        handle = os.pidfd_open(child)
        socket.send_fds(line, [str(child).encode()], [handle])
        running[handle] = child, fds.pop()
        for fd in fds:
            os.close(fd)


def _end_as(program: Callable[[], None]) -> None:
    """Ends this process as Python does, less taking apart all modules, which would copy them."""
    status = 0
    try:
        program()
    except SystemExit as error:
        if error.code is not None and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]  # waits for other threads
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    ctypes.CDLL(None).exit(status)


def _become(words: list[str], env: dict[str, str], cwd: str, fds: list[int], group: bool) -> None:
    """Runs a program in this process."""
    if group:
        os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv = [words[0], *words[2:]]
    if words[0] == "-c":
        names: dict[str, Any] = vars(sys.modules["__main__"])
        exec(compile(words[1], "<string>", "exec"), names)
    else:
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
