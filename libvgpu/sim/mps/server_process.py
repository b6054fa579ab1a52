"""The MPS server. It does no GPU work: by its life the drivers know that MPS lives.

It holds a lock on each GPU it serves, and the connection of each client. When it dies, in whatever
way, the locks and the connections end with it, and the clients' calls fail. When the daemon dies
first, the server goes on for the clients it has and ends with the last of them.
"""

import contextlib
import os
import resource
import selectors
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from .served_gpus import machine_devices, take_devices
from .wire import MPS_CONNECTION_FAILED, MpsControlError, ServerError

_LARGEST = 1024
SERVER_NAME = "nvidia-cuda-mps-server"  # the kernel keeps 15 bytes of it


def _serve(channel: socket.socket) -> None:
    clients = 0
    orphaned = False
    selector = selectors.DefaultSelector()
    selector.register(channel, selectors.EVENT_READ, None)
    while not (orphaned and clients == 0):
        for key, _ in selector.select():
            if key.data is None:
                message, descriptors, _, _ = socket.recv_fds(channel, _LARGEST, 1)
                if not message:
                    selector.unregister(channel)
                    orphaned = True
                elif not descriptors:  # there was no room for one more
                    channel.send(f"left {message.decode()}".encode())
                for descriptor in descriptors:
                    client = socket.socket(fileno=descriptor)
                    client.setblocking(False)
                    selector.register(client, selectors.EVENT_READ, message.decode())
                    clients += 1
                continue
            client = key.fileobj  # type: ignore[assignment]
            try:
                if client.recv(_LARGEST):  # all that a client can say is that it met a fault
                    _tell_fault(channel, key.data, orphaned)
                    continue
            except BlockingIOError:
                continue
            except OSError:
                pass  # reset: gone as well
            selector.unregister(client)
            client.close()
            clients -= 1
            if not orphaned:
                try:
                    channel.send(f"left {key.data}".encode())
                except OSError:
                    continue  # the daemon has died; reading tells so, too


def _tell_fault(channel: socket.socket, number: str, orphaned: bool) -> None:
    # What it says is NVIDIA's; the form of the line is ours.
    with contextlib.suppress(OSError):
        os.write(1, b"Volta MPS: Server is handling a fatal GPU error\n")
    if not orphaned:
        with contextlib.suppress(OSError):  # the daemon has died; reading tells so, too
            channel.send(f"fault {number}".encode())


def _run(channel: socket.socket, uid: int, gid: int, machine: Path, devices: list[str]) -> None:
    try:
        _, uuids = machine_devices(machine)
        take_devices(machine, uuids, devices)
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a descriptor a client
        if uid != os.geteuid():
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
    except (MpsControlError, OSError) as error:
        channel.send(f"failed {MPS_CONNECTION_FAILED} {error}".encode())
        return
    except ServerError as error:
        channel.send(f"failed {error.code} {error}".encode())
        return
    channel.send(b"ready")
    _serve(channel)


def become_server(
    channel: socket.socket,
    uid: int,
    gid: int,
    machine: Path,
    devices: list[str],
    log_directory: Path,
) -> NoReturn:
    """Makes a child of the daemon the server of a user. No program is started for it, since that
    user need not reach the interpreter; the GPUs are taken before the change of user."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        os.chdir("/")
        with open("/proc/self/comm", "w") as name:
            name.write(SERVER_NAME)
        with open(log_directory / "server.log", "ab") as output:
            for descriptor in (1, 2):
                os.dup2(output.fileno(), descriptor)
        kept = channel.fileno()
        os.closerange(3, kept)
        os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
        _run(channel, uid, gid, machine, devices)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)
