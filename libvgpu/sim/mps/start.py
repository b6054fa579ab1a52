"""How a process becomes the control daemon of a pipe directory, and what it leaves at its end."""

import contextlib
import fcntl
import os
import socket
from pathlib import Path

from .control import ControlDaemon, log
from .served_gpus import machine_devices, served_devices
from .settings import MpsSettings
from .wire import TOOL, MpsControlError, socket_name

PID_FILE = f"{TOOL}.pid"


def start(directory_path: str, log_path: str, background: bool, multiuser: bool) -> int:
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
    directory, log_directory = Path(directory_path), Path(log_path).absolute()
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
    with contextlib.suppress(OSError):  # no room; clients find it by its socket
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
