"""What a node loses when it is turned off, for `support.node.init`, which is its first process.

No process is left but those that are named, nor what was mounted for containers, nor their
interfaces, cgroups and packet filters; /run and /dev/shm are empty. /var/lib is as it was.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path

from support.node import keeper as node_keeper
from support.node.cgroups import LEAF
from vgpuctl.demo import syscalls

CGROUPS = Path("/sys/fs/cgroup")
#: What `mount_volatile` mounts.
_VOLATILE = ("/run", "/dev/shm")
#: Below these lies what is mounted for containers.
_OF_CONTAINERS = (*_VOLATILE, "/var/lib/kubelet", "/var/lib/containerd", "/var/lib/vgpu")
_OF_NODE = {"lo", "eth0", "wire"}
_TABLES = ("raw", "mangle", "nat", "filter")
_END_S = 30.0


def mount_volatile() -> None:
    """Mounts what a node has in memory, empty."""
    for directory in _VOLATILE:
        syscalls.mount("tmpfs", directory, "tmpfs", 0, "mode=755")
    os.chmod("/dev/shm", 0o1777)
    os.mkdir("/run/lock")


def turn_off(keep: Collection[int], reap: Callable[[], None]) -> None:
    """Ends everything but this process and those in ``keep``, and takes away what they had made.

    Args:
        keep: numbers of processes.
        reap: takes notice of processes that have ended.

    Raises:
        TimeoutError: a process does not end.
    """
    _end_processes({os.getpid(), *keep}, reap)
    _unmount()
    _remove_network()
    is_unified = (CGROUPS / "cgroup.controllers").exists()
    for hierarchy in (CGROUPS,) if is_unified else CGROUPS.iterdir():
        for cgroup in filter(os.path.isdir, hierarchy.iterdir()):
            if cgroup.name != LEAF:
                node_keeper.remove(cgroup)
    mount_volatile()


def _end_processes(keep: Collection[int], reap: Callable[[], None]) -> None:
    deadline = time.monotonic() + _END_S
    while left := {int(name) for name in os.listdir("/proc") if name.isdecimal()} - set(keep):
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        reap()
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {sorted(left)} do not end")
        time.sleep(0.01)


def _unmount() -> None:
    """Unmounts what lies below directories of containers, the deepest first, and /run itself."""
    targets = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for target in reversed(targets):
        path = target.replace("\\040", " ")
        if path in _VOLATILE or any(path.startswith(f"{each}/") for each in _OF_CONTAINERS):
            syscalls.unmount(path)


def _remove_network() -> None:
    for interface in set(os.listdir("/sys/class/net")) - _OF_NODE:
        # Of a pair the second end is gone with the first.
        subprocess.run(["ip", "link", "delete", interface], check=False, stdout=sys.stderr)
    empty = "".join(f"*{table}\nCOMMIT\n" for table in _TABLES)
    subprocess.run(["iptables-restore"], input=empty, text=True, check=True, stdout=sys.stderr)
