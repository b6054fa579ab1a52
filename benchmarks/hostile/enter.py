"""``python -m benchmarks.hostile.enter FD``: makes containers of a fork, so that each is quick.

Each order comes as JSON with a socket. Root, mounts, capabilities and user are as a container
runtime makes them: a PID namespace, `/proc` of its own, of which the parts that change the kernel
are read-only, and no new privileges. The attack talks by the socket. When the other end of that is
closed, all of the container is killed, and then the socket is closed here.
"""

import ctypes
import json
import os
import signal
import socket
import sys
from typing import Any

from vgpuctl.demo import rootfs, syscalls

from .attacks.run import run

_READ_ONLY = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus")
_MS_NOEXEC, _NEWPID, _MOST_BYTES = 0x8, 0x20000000, 1 << 16
_SYS_CAPSET, _CAPABILITY_VERSION_3 = 126, 0x20080522


def _keep_capabilities(kept: list[int]) -> None:
    """Gives all others up at once."""
    syscalls.drop_capabilities_but(frozenset(kept))
    word = sum(1 << number for number in kept)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)(word, word, 0, 0, 0, 0)
    if ctypes.CDLL(None, use_errno=True).syscall(_SYS_CAPSET, header, data) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def _contain(order: dict[str, Any]) -> None:
    binds = [rootfs.Bind(*each) for each in order["binds"]]
    rootfs.enter(order["mountpoint"], binds, {"passwd": "root:x:0:0::/:/bin/sh\n"}, host_ipc=False)
    syscalls.mount("proc", "/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | _MS_NOEXEC)
    for path in filter(os.path.exists, _READ_ONLY):
        syscalls.bind(path, path, read_only=True)
    os.setgroups([])
    os.setresgid(order["uid"], order["uid"], order["uid"])
    _keep_capabilities(order["capabilities"])
    syscalls.no_new_privileges()
    os.chdir("/")


def _first_of_container(order: dict[str, Any], line: socket.socket) -> None:
    os.closerange(3, line.fileno())
    os.closerange(line.fileno() + 1, 4096)
    if order["uid"]:  # first, while it may; it takes the capabilities away
        order["capabilities"] = []
    _contain(order)
    run(order["attack"], line)


def _serve(order: dict[str, Any], line: socket.socket) -> None:
    syscalls.unshare(_NEWPID)
    first = os.fork()
    if first == 0:
        try:
            _first_of_container(order, line)
        finally:
            os._exit(1)
    os.set_blocking(line.fileno(), True)
    line.recv(1, socket.MSG_PEEK)  # nothing is ever said: it ends
    os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)


def main() -> None:
    """Forks a container for each order."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    orders = socket.socket(fileno=int(sys.argv[1]))
    while True:
        text, files, _, _ = socket.recv_fds(orders, _MOST_BYTES, 1)
        if not text:
            return
        line = socket.socket(fileno=files[0])
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                _serve(json.loads(text), line)
            finally:
                os._exit(0)
        line.close()


if __name__ == "__main__":
    main()
