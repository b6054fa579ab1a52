"""The command line of ``nvidia-cuda-mps-control``: starts a daemon, or talks to one.

``-d`` starts the daemon in the background, ``-f`` in the foreground; without either, commands are
read from stdin, sent to the daemon of the pipe directory and its answers printed.
"""

import fcntl
import os
import socket
import sys
from pathlib import Path

from .control import ControlDaemon, log
from .gpus import machine_devices, served_devices
from .settings import MpsSettings
from .wire import TOOL, MpsControlError, ask, socket_name

DEFAULT_PIPE_DIRECTORY = "/tmp/nvidia-mps"
DEFAULT_LOG_DIRECTORY = "/var/log/nvidia-mps"
PID_FILE = f"{TOOL}.pid"
USAGE = f"""\
usage: {TOOL} [-d | -f] [-multiuser-server] [-v] [-h]
  -d                 start the daemon in the background
  -f                 start the daemon in the foreground
  -multiuser-server  one server for the clients of all users
  -v                 print the version
  -h                 print this
Without -d and -f, commands are read from stdin.
"""
VERSION = "CUDA MPS Control binary version: 13000 (simulated)"


def start(directory: Path, log_directory: Path, background: bool, multiuser: bool) -> int:
    """Becomes the daemon of a pipe directory; returns the exit status of this process.

    Raises:
        MpsControlError: there is one already, or what it needs is missing.
    """
    machine = Path(os.environ.get("VGPU_SIM_MACHINE", "")).absolute()
    if not os.environ.get("VGPU_SIM_MACHINE"):
        raise MpsControlError("no simulated machine: VGPU_SIM_MACHINE is not set")
    identifier, uuids = machine_devices(machine)
    devices = served_devices(uuids, os.environ.get("CUDA_VISIBLE_DEVICES"))
    settings = MpsSettings.from_environment(devices, os.environ)
    log_directory = log_directory.absolute()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        log_directory.mkdir(parents=True, exist_ok=True)
        if directory.stat().st_uid == os.geteuid():
            directory.chmod(0o755)  # clients of other users must reach the socket
        lock_fd = os.open(directory / "control.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise MpsControlError(f"cannot use {error.filename}: {error.strerror}") from None
    ready_read, ready_write = os.pipe()
    if background and os.fork():
        os.close(ready_write)
        return 0 if os.read(ready_read, 1) == b"0" else 1
    try:
        fcntl.lockf(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise MpsControlError(f"an MPS control daemon runs already for {directory}") from None
    (directory / "control").unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(socket_name(directory_fd))
    (directory / "control").chmod(0o666)
    listener.listen(64)
    pid_file = (directory / PID_FILE).absolute()
    pid_file.write_text(f"{os.getpid()}\n")
    if background:
        os.setsid()
        os.chdir("/")
        with open(log_directory / "control.log", "ab") as output, open(os.devnull, "rb") as null:
            os.dup2(null.fileno(), 0)
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
    os.write(ready_write, b"0")
    os.close(ready_write)
    log(f"Simulated control daemon {os.getpid()} serves {', '.join(devices)}")
    quitters = ControlDaemon(machine, identifier, settings, log_directory, multiuser).run(listener)
    for path in (pid_file, pid_file.with_name("control")):
        path.unlink(missing_ok=True)
    os.close(lock_fd)  # before the answer: the next daemon may start upon it
    for tool in quitters:
        tool.answer("0")
    return 0


def _talk(directory: Path) -> int:
    status = 0
    for line in sys.stdin:
        if not line.strip():
            continue
        try:
            answer = ask(directory, line.strip())
        except MpsControlError as error:
            print(f"{TOOL}: {error}", file=sys.stderr)
            status = 1
            continue
        if answer:
            print(answer, flush=True)
        if line.split()[0] == "quit":
            break
    return status


def main(arguments: list[str]) -> int:
    """Runs the tool; returns its exit status."""
    directory = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or DEFAULT_PIPE_DIRECTORY)
    log_directory = Path(os.environ.get("CUDA_MPS_LOG_DIRECTORY") or DEFAULT_LOG_DIRECTORY)
    unknown = [a for a in arguments if a not in ("-d", "-f", "-multiuser-server", "-v", "-h")]
    if unknown:
        print(
            f"{TOOL}: unknown option {unknown[0]!r}: use -d, -f, -multiuser-server, -v, -h",
            file=sys.stderr,
        )
        return 2
    if "-h" in arguments:
        print(USAGE, end="")
        return 0
    if "-v" in arguments:
        print(VERSION)
        return 0
    try:
        if "-d" in arguments or "-f" in arguments:
            return start(
                directory, log_directory, "-d" in arguments, "-multiuser-server" in arguments
            )
        return _talk(directory)
    except MpsControlError as error:
        print(f"{TOOL}: {error}", file=sys.stderr)
        return 1
