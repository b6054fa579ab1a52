"""The simulated MPS control daemon and its client, as ``nvidia-cuda-mps-control`` runs them.

``-d`` starts the daemon in the background, ``-f`` in the foreground; without either, commands are
read from stdin, sent to the daemon of the pipe directory and its answers printed.

The daemon does no GPU work. A simulated driver takes itself for a client of the MPS server while
somebody holds the lock on ``control.lock`` in the pipe directory, and reads there, in
``control.state``, which GPUs of which machine are served and with what defaults
(sim/driver/mps_client.c). There is no server process apart from the daemon, so the server list
shows the daemon itself.

Only the standard library is used, and nothing of this project is imported: the tool is started by
whatever ``python3`` is in PATH.
"""

import fcntl
import os
import re
import signal
import socket
import struct
import sys
import threading
from pathlib import Path

TOOL = "nvidia-cuda-mps-control"
DEFAULT_PIPE_DIRECTORY = "/tmp/nvidia-mps"
DEFAULT_LOG_DIRECTORY = "/var/log/nvidia-mps"
LARGEST_MESSAGE = 65536
MPS_LOCK_BASE = 0x20000000000
WHOLE_PERCENT = 100.0
_SIZE = re.compile(r"\d+[KMG]?B?", re.IGNORECASE)


class MpsControlError(Exception):
    """Something cannot be done; the message is one sentence."""


def machine_devices(machine: Path) -> tuple[str, list[str]]:
    """Returns identifier and GPU UUIDs of a machine, from its file ``about``.

    Raises:
        MpsControlError: there is no machine.
    """
    identifier, uuids = "", []
    try:
        lines = (machine / "about").read_text().splitlines()
    except OSError as error:
        raise MpsControlError(
            f"no simulated machine in {str(machine)!r} (VGPU_SIM_MACHINE): {error.strerror}"
        ) from None
    for line in lines:
        key, _, value = line.partition(" ")
        if key == "identifier":
            identifier = value
        elif key == "device":
            uuids.append(value)
    return identifier, uuids


def served_devices(uuids: list[str], visible: str | None) -> list[str]:
    """Returns the GPUs that CUDA_VISIBLE_DEVICES leaves, all without it.

    Raises:
        MpsControlError: it names one that the machine does not have.
    """
    if visible is None:
        return uuids
    chosen = []
    for entry in filter(None, (part.strip() for part in visible.split(","))):
        if entry.isdigit() and int(entry) < len(uuids):
            chosen.append(uuids[int(entry)])
        elif entry in uuids:
            chosen.append(entry)
        else:
            raise MpsControlError(
                f"CUDA_VISIBLE_DEVICES names {entry!r}, which is no GPU of this machine: "
                f"it has {', '.join(uuids)}"
            )
    return chosen


def serve_devices(machine: Path, uuids: list[str], devices: list[str]) -> int:
    """Locks the byte of each device in the machine's file, by which its drivers know that a server
    lives (SIM_MPS_BASE in sim/core/layout.h); returns the descriptor that holds the locks.

    Raises:
        MpsControlError: another server has one of them.
    """
    file_fd = os.open(machine / "machine", os.O_RDWR | os.O_CLOEXEC)
    for device in devices:
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET,
                           MPS_LOCK_BASE + uuids.index(device), 1, 0)  # fmt: skip
        try:
            fcntl.fcntl(file_fd, fcntl.F_OFD_SETLK, lock)
        except OSError:
            os.close(file_fd)
            raise MpsControlError(f"another MPS server serves {device} already") from None
    return file_fd


class Settings:
    """The daemon's defaults, and the file in which the drivers read them."""

    def __init__(self, directory: Path, identifier: str, devices: list[str]) -> None:
        self.directory = directory
        self.identifier = identifier
        self.devices = devices
        self.percentage = WHOLE_PERCENT
        self.pinned: dict[str, str] = {}

    def write(self) -> None:
        """Replaces ``control.state`` as a whole."""
        lines = [f"machine {self.identifier}", *(f"device {uuid}" for uuid in self.devices)]
        lines.append(f"default_active_thread_percentage {max(1, int(self.percentage))}")
        lines.extend(f"pinned {uuid} {size}" for uuid, size in self.pinned.items())
        draft = self.directory / "control.state.new"
        draft.write_text("\n".join(lines) + "\n")
        draft.chmod(0o644)
        draft.replace(self.directory / "control.state")

    def _device(self, name: str) -> str:
        if name.isdigit() and int(name) < len(self.devices):
            return self.devices[int(name)]
        if name in self.devices:
            return name
        raise MpsControlError(f"no device {name!r}: this daemon serves {', '.join(self.devices)}")

    def answer(self, command: str) -> str:
        """Does one command and returns what the tool prints.

        Raises:
            MpsControlError: unknown command or a value that is not allowed.
        """
        words = command.split()
        match words:
            case ["get_server_list"]:
                return str(os.getpid())
            case ["get_default_active_thread_percentage"]:
                return f"{self.percentage:.1f}"
            case ["set_default_active_thread_percentage", value]:
                try:
                    percentage = float(value)
                except ValueError:
                    percentage = 0.0
                if not 0 < percentage <= WHOLE_PERCENT:
                    raise MpsControlError(
                        f"thread percentage {value!r} is not above 0 and at most 100"
                    )
                self.percentage = percentage
                self.write()
                return f"{self.percentage:.1f}"
            case ["set_default_device_pinned_mem_limit", device, value]:
                if not _SIZE.fullmatch(value):
                    raise MpsControlError(
                        f"memory limit {value!r} is not a size such as 4096M or 4G"
                    )
                self.pinned[self._device(device)] = value.upper().removesuffix("B")
                self.write()
                return ""
            case ["get_default_device_pinned_mem_limit", device]:
                return self.pinned.get(self._device(device), "")
            case ["get_device_client_list" | "ps", *_]:
                raise MpsControlError(f"{words[0]} is not simulated")
            case _:
                raise MpsControlError(f"unknown command {command!r}")


def socket_name(directory_fd: int) -> str:
    """Returns a short name for ``control`` in a directory: socket paths end at 107 bytes."""
    return f"/proc/self/fd/{directory_fd}/control"


def serve(directory: Path, settings: Settings, listener: socket.socket) -> None:
    """Answers clients until one says ``quit`` or a signal ends it."""
    stopping = threading.Event()

    def stop(*_: object) -> None:
        stopping.set()
        listener.shutdown(socket.SHUT_RDWR)  # wakes accept()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    while not stopping.is_set():
        try:
            client, _ = listener.accept()
        except OSError:
            break
        with client:
            client.settimeout(1.0)  # one that says nothing must not hold up the others
            try:
                command = client.recv(LARGEST_MESSAGE).decode().strip()
                if command.split()[:1] == ["quit"]:
                    client.sendall(b"0")
                    break
                try:
                    reply = "0" + settings.answer(command)
                except MpsControlError as error:
                    reply = f"1{error}"
                client.sendall(reply.encode())
            except (OSError, UnicodeDecodeError):
                continue
    for name in ("control", "control.state", "control.pid"):
        (directory / name).unlink(missing_ok=True)


def start(directory: Path, log_directory: Path, background: bool) -> int:
    """Becomes the daemon of a pipe directory; returns the exit status of this process.

    Raises:
        MpsControlError: there is one already, or what it needs is missing.
    """
    machine = os.environ.get("VGPU_SIM_MACHINE", "")
    identifier, uuids = machine_devices(Path(machine))
    devices = served_devices(uuids, os.environ.get("CUDA_VISIBLE_DEVICES"))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        log_directory.mkdir(parents=True, exist_ok=True)
        if directory.stat().st_uid == os.geteuid():
            directory.chmod(0o755)  # clients of other users must reach the socket
        lock_fd = os.open(directory / "control.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.fchmod(lock_fd, 0o644)
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
    serve_devices(Path(machine), uuids, devices)
    settings = Settings(directory, identifier, devices)
    (directory / "control").unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(socket_name(directory_fd))
    (directory / "control").chmod(0o666)
    listener.listen(64)
    settings.write()
    (directory / "control.pid").write_text(f"{os.getpid()}\n")
    if background:
        os.setsid()
        os.chdir("/")
        with open(log_directory / "control.log", "ab") as log, open(os.devnull, "rb") as null:
            os.dup2(null.fileno(), 0)
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
    os.write(ready_write, b"0")
    os.close(ready_write)
    print(f"simulated MPS control daemon {os.getpid()} serves {', '.join(devices)}", flush=True)
    serve(directory, settings, listener)
    return 0


def ask(directory: Path, command: str) -> str:
    """Sends one command to the daemon and returns its answer.

    Raises:
        MpsControlError: there is no daemon, or it refuses the command.
    """
    try:
        directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as daemon:
            daemon.settimeout(10.0)
            daemon.connect(socket_name(directory_fd))
            daemon.sendall(command.encode())
            reply = daemon.recv(LARGEST_MESSAGE).decode()
        os.close(directory_fd)
    except OSError as error:
        raise MpsControlError(
            f"Cannot find MPS control daemon process: none answers in {directory} ({error})"
        ) from None
    if not reply.startswith("0"):
        raise MpsControlError(reply[1:] or "the daemon ended")
    return reply[1:]


def main(arguments: list[str]) -> int:
    """Runs the tool; returns its exit status."""
    directory = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or DEFAULT_PIPE_DIRECTORY)
    log_directory = Path(os.environ.get("CUDA_MPS_LOG_DIRECTORY") or DEFAULT_LOG_DIRECTORY)
    unknown = [a for a in arguments if a not in ("-d", "-f", "-multiuser-server")]
    if unknown:
        print(f"{TOOL}: unknown option {unknown[0]!r}: use -d, -f, -multiuser-server",
              file=sys.stderr)  # fmt: skip
        return 2
    status = 0
    try:
        if "-d" in arguments or "-f" in arguments:
            return start(directory, log_directory, background="-d" in arguments)
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
    except MpsControlError as error:
        print(f"{TOOL}: {error}", file=sys.stderr)
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
