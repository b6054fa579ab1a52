"""What daemon, tool, server and drivers say to each other.

Over ``control`` in the pipe directory, one line to the daemon:
- a command of the tool; answered with ``0`` or ``1``, then the text, and closed;
- ``client MACHINE GPU,GPU...`` from a driver's cuInit (sim/driver/mps_client.c), naming the machine
  and the GPUs that the process sees. Answered with lines up to ``end``: ``percentage N``,
  ``device GPU``, ``pinned GPU SIZE``; or ``refused CURESULT``; or ``other``, where the daemon is
  one of another machine. The connection then stays open for as long as the client lives, and is
  closed by the death of either. A client that meets a fatal fault of its GPU says ``fault``.

Between daemon and server, over a socket pair: the server says ``ready`` or ``failed CURESULT
REASON``, is given the connection of each client with its number, and says ``fault NUMBER`` when the
client has met a fault, ``left NUMBER`` when it has gone.
"""

import os
import socket

TOOL = "nvidia-cuda-mps-control"
LARGEST_MESSAGE = 65536
ANSWER_SECONDS = 30.0

# CUresults that a driver answers when it is refused.
DEVICE_UNAVAILABLE = 46
MPS_CONNECTION_FAILED = 805
MPS_SERVER_NOT_READY = 807


class MpsControlError(Exception):
    """Something cannot be done; the message is one sentence."""


class ServerError(Exception):
    """A server cannot start.

    Attributes:
        code: the CUresult that its clients answer.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def whole_number(text: str) -> int | None:
    """Returns the number that some digits stand for, as that of `libvgpu.sizes` does."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else None


def socket_name(directory_fd: int) -> str:
    """Returns a short name for ``control`` in a directory: socket paths end at 107 bytes."""
    return f"/proc/self/fd/{directory_fd}/control"


def ask(directory: str, command: str) -> str:
    """Sends one command to the daemon of a pipe directory and returns its answer.

    Raises:
        MpsControlError: there is no daemon, or it refuses the command.
    """
    reply = b""
    try:
        directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as daemon:
                daemon.settimeout(ANSWER_SECONDS)
                daemon.connect(socket_name(directory_fd))
                if command.split()[0] == "quit":  # waits for the clients
                    daemon.settimeout(None)
                daemon.sendall(command.encode() + b"\n")
                while part := daemon.recv(LARGEST_MESSAGE):
                    reply += part
        finally:
            os.close(directory_fd)
    except OSError as error:
        raise MpsControlError(
            f"Cannot find MPS control daemon process: none answers in {directory} ({error})"
        ) from None
    if not reply.startswith(b"0"):
        raise MpsControlError(reply[1:].decode() or "the daemon ended")
    return reply[1:].decode()
