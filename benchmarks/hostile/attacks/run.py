"""Running one attack, in its container."""

import json
import select
import socket
import traceback

from . import ATTACKS
from .place import outcomes

_PAUSE_S = 0.002  # else the attack is that it takes a processor


def run(name: str, line: socket.socket) -> None:
    """Runs an attack, says what it could do once it is prepared, and goes on for ever."""
    try:
        steps = ATTACKS[name].steps()
        has_more = next(steps, steps) is None
        line.sendall(f"{json.dumps(outcomes)}\n".encode())
        while has_more:
            select.select([], [], [], _PAUSE_S)
            has_more = next(steps, steps) is None
        select.select([], [], [])
    except Exception:
        line.sendall(json.dumps(traceback.format_exc()).encode() + b"\n")
