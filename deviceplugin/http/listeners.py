"""Sockets to listen on: an address for scrapes and probes, a file for `vgpuctl`."""

import os
import socket
from pathlib import Path

from libvgpu.errors import UsageError, VgpuError

#: The agent's socket in the run directory.
AGENT_SOCKET = "agent.sock"
_SOCKET_PATH_BYTES = 107  # sun_path less its final NUL
_BACKLOG = 64


def split_address(address: str, what: str = "metrics address") -> tuple[str, int]:
    """Returns host and port of ``HOST:PORT``; no host means all, port 0 means any.

    Args:
        what: it is, as an error calls it.

    Raises:
        UsageError: it is something else.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"{what} {address!r} is not HOST:PORT, for example :9446 or 127.0.0.1:0")
    return host.strip("[]") or "0.0.0.0", int(port)


def tcp_listener(address: str, what: str = "metrics address") -> socket.socket:
    """Returns a socket that listens on ``HOST:PORT``.

    Args:
        what: it is, as an error calls it.

    Raises:
        UsageError: the address is not HOST:PORT or cannot be bound.
    """
    host, port = split_address(address, what)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, where = found[0]
        return socket.create_server(where[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        raise UsageError(f"{what} {address!r} cannot be bound: {error.strerror}") from None


def unix_listener(path: Path) -> socket.socket:
    """Returns a socket that listens at ``path`` for its owner alone; an old one is replaced.

    The caller knows that nobody else serves there.

    Raises:
        VgpuError: it cannot be made.
    """
    temporary = path.with_name(path.name + ".new")
    if len(os.fsencode(temporary)) > _SOCKET_PATH_BYTES:
        raise UsageError(
            f"the socket {path} has a path longer than a Unix socket may have; choose a shorter "
            "run directory"
        )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        temporary.unlink(missing_ok=True)
        listener.bind(str(temporary))
        os.chmod(temporary, 0o600)
        listener.listen(_BACKLOG)
        temporary.replace(path)  # nobody ever meets it with wider modes, or before it listens
    except OSError as error:
        listener.close()
        raise VgpuError(f"the socket {path} cannot be made: {error.strerror}") from None
    return listener
