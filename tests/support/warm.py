"""Python programs of tests that begin where others have done their imports.

What a CUDA client or `vgpuctl` imports takes most of its life. So a server does that once, and each
program is a child that it forks before any of it has run: no driver is loaded by then, and no
variable but the loader's was read. There is one server for each way to load libraries, since a
process keeps the loader's variables that it began with; programs whose libraries are made by their
test start by themselves (`subprocess.Popen`), and so does what a test talks to by its stdin.
"""

import atexit
import contextlib
import ctypes
import gc
import json
import linecache
import os
import pkgutil
import runpy
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
from support.warm_program import Program, readable

#: What a server loads, by its kind: the word ``-c``, a module's name or the first part of it.
_LOADED = {
    "-c": ("json", "threading", "support.shim.cuda_client"),
    "vgpuctl": ("vgpuctl",),
    "deviceplugin": ("deviceplugin.__main__",),
    "deviceplugin.scheduler": ("deviceplugin.scheduler.__main__",),
    "pytest": ("_pytest", "psutil._pslinux"),
    "support.exercise.process": ("support.exercise.process",),
}
#: What may end with threads at work, and so ends as any Python program does.
_WITH_THREADS = ("deviceplugin", "deviceplugin.scheduler")
_OF_THE_LOADER = ("LD_", "PYTHON")
_PATH = "PYTHONPATH"
_UNTOLD = ("VGPU_TEST_RUN",)  # so that leftovers.py does not take the server for a test's
_PR_SET_PDEATHSIG = 1
_ANSWERS_S = PATIENCE_S  # a server, to fork
_ROOM = "-" * 4000  # in a server's command line, for those of its programs
_lock = threading.Lock()
_started: list[Program] = []
_servers: dict[tuple[object, ...], tuple[socket.socket, "subprocess.Popen[bytes]"]] = {}


def run(
    words: Sequence[str],
    env: Mapping[str, str],
    *,
    cwd: Path = ROOT,
    told: str = "",
    like: str = "",
    terminal: int | None = None,
) -> "subprocess.CompletedProcess[str]":
    """Runs a Python program to its end, as `subprocess.run` does.

    Args:
        words: behind ``python``: ``-c`` and its text, or ``-m`` and a name; then its arguments.
        env: its environment.
        cwd: where it runs.
        told: what it reads from stdin.
        like: the kind of its server; by default what its words say.
        terminal: stdin, stdout and stderr of the program, in place of files.

    Raises:
        TimeoutExpired: it has not ended after `PATIENCE_S`, and was killed.
    """
    libraries = ":".join(env.get(name, "") for name in ("LD_LIBRARY_PATH", "LD_PRELOAD"))
    if not all(Path(each).is_relative_to(ROOT) for each in libraries.split(":") if each):
        return subprocess.run(
            [sys.executable, *words],
            cwd=cwd,
            env=env,
            input=told,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    with contextlib.ExitStack() as stack:
        files = [
            stack.enter_context(os.fdopen(os.memfd_create(name), "w+", encoding="utf-8"))
            for name in ("stdin", "stdout", "stderr")
        ]
        files[0].write(told)
        files[0].seek(0)
        fds = [file.fileno() for file in files] if terminal is None else [terminal] * 3
        program = _start_program(words, env, cwd, fds, like)
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
    log: IO[Any],
    *,
    cwd: Path = ROOT,
    like: str = "",
    group: bool = False,
) -> Program:
    """Starts a Python program that a test stops, as `run` does.

    Args:
        log: where stdout and stderr go.
        group: whether it leads a process group.
    """
    with open(os.devnull) as nothing:
        fds = [nothing.fileno(), log.fileno(), log.fileno()]
        program = _start_program(words, env, cwd, fds, like, group=group)
    if all(env.get(name) for name in _UNTOLD):  # else it serves more than one test
        _started.append(program)
    return program


def left() -> set[int]:
    """Returns the processes of programs that were started and run."""
    _started[:] = [program for program in _started if program.poll() is None]
    return {program.pid for program in _started}


def _start_program(
    words: Sequence[str],
    env: Mapping[str, str],
    cwd: Path,
    fds: list[int],
    like: str,
    *,
    group: bool = False,
) -> Program:
    kind = like or (words[0] if words[0] == "-c" else words[1])
    if kind not in _LOADED:
        kind = kind.partition(".")[0]
    loading = {name: env[name] for name in env if name.startswith(_OF_THE_LOADER)}
    loading.pop(_PATH, None)  # which a program may have of its own
    key = kind, *sorted(loading.items())
    read, write = os.pipe()
    asked = json.dumps([list(words), dict(env), str(cwd), group]).encode()
    try:
        with _lock:
            line, _ = _servers.get(key) or _servers.setdefault(key, _start(kind, env))
            socket.send_fds(line, [asked], [*fds, write])
            return Program(list(words), int(line.recv(100)), read)
    finally:
        os.close(write)


def used_seconds() -> float:
    """Returns the processor time of the servers and of all programs that have ended there."""
    stats = (Path(f"/proc/{server.pid}/stat").read_text() for _, server in _servers.values())
    ticks = sum(int(field) for stat in stats for field in stat.rpartition(")")[2].split()[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def _start(kind: str, env: Mapping[str, str]) -> tuple[socket.socket, "subprocess.Popen[bytes]"]:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    here.settimeout(_ANSWERS_S)
    code = f"from support.warm import serve; serve({there.fileno()}, {kind!r})"
    with there:
        server = subprocess.Popen(
            [sys.executable, "-c", code, _ROOM],
            cwd=ROOT,
            pass_fds=[there.fileno()],
            env={key: value for key, value in env.items() if key not in _UNTOLD}
            | {_PATH: f"{ROOT / 'tests'}:{ROOT}"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    return here, server


# One loop, a word for each request.
def serve(number: int, kind: str) -> None:  # noqa: C901, PLR0912
    """The server, and in the children that it forks the programs."""
    for name in _LOADED[kind]:
        package = import_module(name)
        for found in pkgutil.walk_packages(getattr(package, "__path__", ()), f"{name}."):
            if not found.name.endswith("__main__"):
                import_module(found.name)
    line = socket.socket(fileno=number)
    gc.collect()
    gc.freeze()  # what the collector does not touch, a child need not copy
    running: dict[int, tuple[int, int]] = {}  # what becomes readable at its end; who is told
    while True:
        ready = readable(number, *running)
        for ended in running.keys() & ready:
            pid, told = running.pop(ended)
            os.write(told, str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
            os.close(told)
            os.close(ended)
        if number not in ready:
            continue
        asked, fds, _, _ = socket.recv_fds(line, 1 << 20, 4)
        if not asked:
            os._exit(0)
        told = fds.pop()
        child = os.fork()
        if child == 0:
            for fd in (number, told, *running, *(told for _, told in running.values())):
                os.close(fd)
            line.detach()
            break
        for fd in fds:
            os.close(fd)
        running[os.pidfd_open(child)] = child, told
        line.send(str(child).encode())
    words, env, where, group = json.loads(asked)
    if group:
        os.setpgid(0, 0)
    if kind in _WITH_THREADS:
        _become(words, env, where, fds)
    else:
        _end_as(lambda: _become(words, env, where, fds))


def _end_as(program: Callable[[], None]) -> None:
    """Ends this process as Python does, less taking apart all modules, which would copy them.

    Other threads stop where they want the interpreter's lock, which the last call keeps.
    """
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
    ctypes.PyDLL(None).exit(status)


def _show(command: list[str]) -> None:
    """Makes this the process's command line in ``/proc``, by which tests find processes.

    What it forks shows the same until it runs another program. See proc(5) for the places.
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])
    text = b"".join(os.fsencode(word) + b"\0" for word in command)[: end - begin - 1]
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, text, len(text))


def _become(words: list[str], env: dict[str, str], cwd: str, fds: list[int]) -> None:
    """Runs a program in this process."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _show([sys.executable, *words])
    for number, (fd, name) in enumerate(zip(fds, ("stdin", "stdout", "stderr"), strict=True)):
        os.dup2(fd, number)
        os.close(fd)
        known = getattr(sys, name)  # of the server's file, which is of another kind
        opened = open(  # noqa: SIM115
            number,
            known.mode,
            1 if number == 2 else -1,
            known.encoding,
            known.errors,
            closefd=False,
        )
        setattr(sys, name, opened)
        setattr(sys, f"__{name}__", opened)
    os.environ.clear()
    os.environ.update(env)
    sys.path[:0] = [folder for folder in env.get(_PATH, "").split(os.pathsep) if folder]
    os.chdir(cwd)
    sys.argv = [words[0], *words[2:]]
    if words[0] == "-c":
        names: dict[str, Any] = vars(sys.modules["__main__"])
        lines = words[1].splitlines(keepends=True)  # which a traceback shows
        linecache.cache["<string>"] = (len(words[1]), None, lines, "<string>")
        exec(compile(words[1], "<string>", "exec"), names)  # noqa: S102 - what -c runs
    else:
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
