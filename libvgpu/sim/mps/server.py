"""The MPS server. It does no GPU work: by its life the drivers know that MPS lives.

It holds a lock on each GPU it serves, and the connection of each client. When it dies, in whatever
way, the locks and the connections end with it, and the clients' calls fail. When the daemon dies
first, the server goes on for the clients it has and ends with the last of them.
"""

import selectors
import socket
from pathlib import Path

from .gpus import machine_devices, take_devices
from .wire import MPS_CONNECTION_FAILED, MpsControlError, ServerError

_LARGEST = 1024


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
                for descriptor in descriptors:
                    client = socket.socket(fileno=descriptor)
                    client.setblocking(False)
                    selector.register(client, selectors.EVENT_READ, message.decode())
                    clients += 1
                continue
            client = key.fileobj  # type: ignore[assignment]
            try:
                if client.recv(_LARGEST):
                    continue  # clients have nothing to say
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


def main(arguments: list[str]) -> int:
    """Runs the server: CHANNEL-DESCRIPTOR MACHINE GPU...; returns its exit status."""
    channel = socket.socket(fileno=int(arguments[0]))
    machine, devices = Path(arguments[1]), arguments[2:]
    try:
        _, uuids = machine_devices(machine)
        take_devices(machine, uuids, devices)
    except MpsControlError as error:
        channel.send(f"failed {MPS_CONNECTION_FAILED} {error}".encode())
        return 1
    except ServerError as error:
        channel.send(f"failed {error.code} {error}".encode())
        return 1
    channel.send(b"ready")
    _serve(channel)
    return 0
