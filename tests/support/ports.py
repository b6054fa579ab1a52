"""Ports for programs that cannot say which one they got.

A port that was free a moment ago may be another program's by now. So it is held: as long as a
socket that never listens is bound to it, the kernel gives it to nobody who asks for any port, and a
server that names it may still listen there, since both say SO_REUSEADDR.
"""

import socket

#: Until the end of this process, since nobody knows when the last server of a port has gone.
_held: list[socket.socket] = []


def held_port() -> int:
    """Returns a port of 127.0.0.1 that nobody else is given."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind(("127.0.0.1", 0))
    _held.append(found)
    return int(found.getsockname()[1])
