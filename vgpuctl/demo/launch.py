"""The other side of exec: ``python -m vgpuctl.demo.launch`` becomes one child of the demo.

It reads a JSON order from stdin, becomes what the order says, and executes its command:

1. ask to be killed with the parent, then make sure that the parent is still the one that gave the
   order: nothing is mounted for a demo that is dead,
2. in a container: enter the new root, drop capabilities, take the user's identity, and ask again,
   since the last change of credentials has cleared it,
3. execute. The process id stays the same throughout.

A fresh process with one thread is used because the demo itself has gRPC threads, after whose fork
little is safe. Standard library only, so that it starts quickly. On failure one sentence goes to
stderr and the exit status is 125, as container runtimes have it.
"""

import json
import os
import sys
from dataclasses import asdict, dataclass, field

from . import rootfs, syscalls

EXIT_NOT_STARTED = 125

# What container runtimes leave to root in a container, by number in linux/capability.h:
# chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, net_raw,
# sys_chroot, mknod, audit_write, setfcap.
_CONTAINER_CAPABILITIES = frozenset({0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31})


@dataclass(frozen=True, slots=True)
class Order:
    """What a child is to become.

    Attributes:
        name: for messages.
        parent_pid: whose death ends it.
        argv: the command; the first word is looked up in the PATH of ``env``.
        env: its whole environment.
        directory: where it starts.
        mountpoint: where the new root is put together; empty: no container.
        binds: of the container, as `rootfs.Bind`.
        accounts: /etc files of the container.
        host_ipc: keep the host's IPC.
        uid: numeric user of the container.
        gid: numeric group of the container.
    """

    name: str
    parent_pid: int
    argv: tuple[str, ...]
    env: dict[str, str]
    directory: str = "/"
    mountpoint: str = ""
    binds: tuple[rootfs.Bind, ...] = ()
    accounts: dict[str, str] = field(default_factory=dict)
    host_ipc: bool = False
    uid: int = 0
    gid: int = 0

    def encode(self) -> bytes:
        """Returns the order as it goes to the launcher."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> "Order":
        """Reads what `encode` wrote."""
        values = json.loads(data)
        values["argv"] = tuple(values["argv"])
        values["binds"] = tuple(rootfs.Bind(**bind) for bind in values["binds"])
        return cls(**values)


def _stay_with(parent_pid: int) -> None:
    """Ends with the parent from here on, and now if it is gone already."""
    syscalls.die_with_parent()
    if os.getppid() != parent_pid:
        sys.exit(EXIT_NOT_STARTED)  # it died before the kernel could tell us


def become(order: Order) -> None:
    """Turns this process into the child; returns only by raising.

    Raises:
        OSError: a step was refused, named in the error.
    """
    _stay_with(order.parent_pid)
    if order.mountpoint:
        rootfs.enter(order.mountpoint, order.binds, order.accounts, order.host_ipc)
        syscalls.drop_capabilities_but(_CONTAINER_CAPABILITIES)
        os.setgroups([])
        os.setresgid(order.gid, order.gid, order.gid)
        os.setresuid(order.uid, order.uid, order.uid)
        syscalls.no_new_privileges()
        _stay_with(order.parent_pid)
    os.chdir(order.directory)
    os.execvpe(order.argv[0], order.argv, order.env)  # noqa: S606 - it becomes the program


def main() -> None:
    """Reads the order from stdin and carries it out."""
    order = Order.decode(sys.stdin.buffer.read())
    os.umask(0o022)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    try:
        become(order)
    except OSError as error:
        what = error.filename or "system call"
        print(f"{order.name}: cannot start: {what}: {error.strerror}", file=sys.stderr)
        sys.exit(EXIT_NOT_STARTED)


if __name__ == "__main__":
    main()
