"""Sockets to listen on: an address for scrapes and probes, a file for `vgpuctl`."""

import errno
import ipaddress
import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from libvgpu.errors import UsageError, VgpuError
from libvgpu.sizes import whole_number

_SOCKET_PATH_BYTES = 107  # sun_path less its final NUL
_BACKLOG = 64
#: How a kernel without IPv6 answers, or one that has none switched on.
_NO_SUCH_FAMILY = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)


def split_address(address: str, what: str = "metrics address") -> tuple[str, int]:
    """Returns host and port of ``HOST:PORT``; an empty host and ``*`` mean all, port 0 means any.

    Args:
        what: it is, as an error calls it.

    Raises:
        UsageError: it is something else.
    """
    host, colon, port = address.rpartition(":")
    number = whole_number(port)
    if not colon or number is None or number > 65535:
        raise UsageError(
            f"{what} {address!r} is not HOST:PORT with a port from 0 to 65535, for example :9446, "
            "127.0.0.1:0 or [::1]:9446"
        )
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if not _is_ipv6(host):
            raise UsageError(f"{what} {address!r} has no IPv6 address in its brackets, as [::1]:80")
    elif any(each in host for each in ":[]"):
        raise UsageError(
            f"{what} {address!r}: an IPv6 address stands in brackets, for example [::1]:9446"
        )
    # The C library takes the asterisk for this machine alone, others write it for all addresses.
    return "" if host == "*" else host, number


def join_address(host: str, port: int) -> str:
    """Returns ``HOST:PORT``, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def tcp_listener(address: str, what: str = "metrics address") -> socket.socket:
    """Returns a socket that listens on ``HOST:PORT``.

    Without a host it takes connections by IPv6 and by IPv4, and by IPv4 alone if the kernel has no
    IPv6. The host ``[::]`` does the same, but needs IPv6.

    Args:
        what: it is, as an error calls it.

    Raises:
        UsageError: the address is not HOST:PORT or cannot be bound.
    """
    host, port = split_address(address, what)
    try:
        if host in ("", "::"):
            try:
                return _listening(socket.AF_INET6, ("::", port))
            except OSError as error:
                if host or error.errno not in _NO_SUCH_FAMILY:
                    raise
            # Said by an address without a host.
            return _listening(socket.AF_INET, ("0.0.0.0", port))  # noqa: S104
        return _first_of(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{what} {address!r} cannot be bound: {why}") from None


def _first_of(found: Iterable[tuple[int, int, int, str, Any]]) -> socket.socket:
    """Listens on the first of a name's addresses whose family the kernel has."""
    problem: OSError | None = None
    for family, _, _, _, where in found:
        try:
            return _listening(family, where)
        except OSError as error:
            problem = problem or error
            if error.errno not in _NO_SUCH_FAMILY:
                raise
    raise problem or OSError(errno.EADDRNOTAVAIL, "it has no address")


def _listening(family: int, where: Any) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # Whatever net.ipv6.bindv6only says. One address alone has one family anyway.
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, where[0] != "::")
        listener.bind(where)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


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
