"""Attackers: who they are, and what a container runtime leaves them."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import libvgpu

#: chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, net_raw,
#: sys_chroot, mknod, audit_write, setfcap: what Docker leaves to root by default.
_DEFAULT = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)
_NOBODY = 65534
_ROOT = Path(libvgpu.__file__).resolve().parent.parent
_END_S = 60.0


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of attacker."""

    name: str
    uid: int
    capabilities: tuple[int, ...] = ()


KINDS = (
    Kind("root without capabilities", 0),
    Kind("root with the default capabilities", 0, _DEFAULT),
    Kind("nobody", _NOBODY),
)


class Attackers:
    """Starts containers, from a process that has loaded all that they need."""

    def __init__(self, base: Path, log: Path | None = None) -> None:
        """Starts that process.

        Args:
            base: a directory for the containers' roots.
            log: for what attackers print; None: it goes where this program's goes.
        """
        self._mountpoint = base / "root"
        self._mountpoint.mkdir()
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with log.open("ab") if log is not None else contextlib.nullcontext() as output:
            self._program = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.hostile.enter", str(theirs.fileno())],
                env={**os.environ, "PYTHONPATH": str(_ROOT)},
                pass_fds=[theirs.fileno()],
                stdout=output,
                stderr=output,
            )
        theirs.close()

    @contextlib.contextmanager
    def attack(
        self, kind: Kind, attack: str, binds: Sequence[tuple[str, str, bool]]
    ) -> Iterator[dict[str, str]]:
        """Has a container attack until the block ends.

        Args:
            binds: what the container has mounted: the host's path, its own, and whether it may
                only read.

        Yields:
            What it tried first, and how each of that ended.
        """
        order = {
            "mountpoint": str(self._mountpoint),
            "binds": binds,
            "uid": kind.uid,
            "capabilities": kind.capabilities,
            "attack": attack,
        }
        ours, theirs = socket.socketpair()
        with ours, ours.makefile() as said:
            with theirs:
                socket.send_fds(self._orders, [json.dumps(order).encode()], [theirs.fileno()])
            outcomes = json.loads(said.readline())
            assert isinstance(outcomes, dict), outcomes
            yield outcomes
            ours.shutdown(socket.SHUT_WR)
            assert not said.read(), "the container is still there"

    def close(self) -> None:
        """Ends the process; containers have ended before."""
        self._orders.close()
        self._program.wait(_END_S)


def can_contain() -> bool:
    """Returns whether this user may make what a container is made of."""
    command = ["unshare", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "x", "/tmp"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
