"""Those with whom the daemon deals: tools and drivers that connect, and its server."""

import os
import signal
import socket
import struct
from dataclasses import dataclass, field

from .settings import MpsSettings
from .wire import MPS_CONNECTION_FAILED

_REPLY_SECONDS = 1.0


class Peer:
    """Somebody who connected: a tool or a driver.

    Attributes:
        pid: 0 if it lives in a PID namespace that we do not see.
        uid: its user.
        gid: its group.
        devices: of a driver, the GPUs that it sees.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        self.pid, self.uid, self.gid = struct.unpack("3i", credentials)
        self.devices: list[str] = []
        self.heard = b""

    def say(self, text: str) -> None:
        """Sends an answer; a peer that has gone or does not read has none."""
        try:
            self.socket.settimeout(_REPLY_SECONDS)
            self.socket.sendall(text.encode())
        except OSError:
            pass

    def answer(self, text: str) -> None:
        """Sends the last answer."""
        self.say(text)
        self.socket.close()

    def refuse(self, code: int) -> None:
        """Tells a driver with which CUresult its cuInit fails."""
        self.answer(f"refused {code}\nend\n")


@dataclass(frozen=True, slots=True)
class MpsClient:
    """A driver that a server has taken."""

    pid: int
    devices: list[str]


@dataclass
class MpsServer:
    """The server as the daemon sees it.

    Attributes:
        settings: what its clients may use.
        active: it holds its GPUs.
        draining: it is to end with its last client.
        faulted: a client has met a fatal fault; until all have ended it takes no other.
        failure: the CUresult for those who wait, if it ends before it is active.
        reason: why it ended, in its own words.
        clients: by number of the connection.
        waiting: drivers to hand over once it is active.
        starters: tools to answer once it is active.
        enders: tools to answer once it is gone.
    """

    pid: int
    channel: socket.socket
    uid: int
    settings: MpsSettings
    active: bool = False
    draining: bool = False
    faulted: bool = False
    failure: int = MPS_CONNECTION_FAILED
    reason: str = "it ended"
    clients: dict[int, MpsClient] = field(default_factory=dict)
    waiting: list[Peer] = field(default_factory=list)
    starters: list[Peer] = field(default_factory=list)
    enders: list[Peer] = field(default_factory=list)

    @property
    def idle(self) -> bool:
        return not self.clients and not self.waiting and not self.starters

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)  # not waited for yet, so it is still this one

    def drain(self) -> None:
        """Has it end with its last client."""
        self.draining = True
        if self.idle:
            self.kill()
