"""The first process of a node (`support.node.keeper` starts it in its namespaces).

It lays out what a node has of its own: cgroups, /run, /var/lib and /var/log, a layer on /etc, an
interface. Then it is the node's init: it starts what it is told to and reaps what ends, until its
stdin ends.

It reads one JSON object a line and answers with one:

    {"do": "start", "name", "argv", "env", "log", "again"} -> {}
    {"do": "run", "argv", "env", "timeout"}           -> {"status", "out", "err"}
    {"do": "status", "name"}                          -> {"status"}: null while it runs
    {"do": "end", "name", "number"}                   -> {}: a signal to what was started
    {"do": "signal", "pid", "number"}                 -> {}: of the node's PID namespace
    {"do": "get", "url", "token", "authority"}        -> {"status", "body"}; status 0: no answer
    {"do": "reboot", "keep": names}                   -> {}; see `support.node.reboot`

What is started with ``again`` is started again when it ends by itself, a few times, as systemd does
with a kubelet: one of 1.34 may crash as it starts ("concurrent map iteration and map write").

Files whose change the kernel would take for the whole machine are covered by plain copies: a
kubelet insists on setting them.
"""

import json
import os
import selectors
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from support.node import reboot as node_reboot
from support.node.cgroups import LEAF, UNIFIED
from vgpuctl.demo import syscalls

ADDRESS = "10.213.0.1"
HOST_NAME = "node"
_GET_S = 10.0
_MS_SHARED = 0x100000
_REAP_EVERY_S = 0.2
_MOST_STARTS = 4
#: By which a kubelet knows that its machine was started again.
BOOT_ID = "kernel/random/boot_id"
#: And what it sets for its machine as it starts.
_SYSCTLS = (
    BOOT_ID,
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)


def lay_out(base: Path, hierarchies: list[str]) -> None:
    """Mounts what the node has of its own.

    Args:
        base: takes /var/lib, /var/log, what differs in /etc, and the copies of kernel settings.
        hierarchies: those of cgroups, as `node.cgroups` names them.
    """
    syscalls.mount("", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
    socket.sethostname(HOST_NAME)
    syscalls.unmount("/sys")
    syscalls.mount("sysfs", "/sys", "sysfs")
    _mount_cgroups(Path("/sys/fs/cgroup"), hierarchies)
    node_reboot.mount_volatile()
    for directory in ("lib", "log"):
        (base / directory).mkdir()
        syscalls.bind(str(base / directory), f"/var/{directory}")
    for name in ("etc", "etc.work"):
        (base / name).mkdir()
    layers = f"lowerdir=/etc,upperdir={base}/etc,workdir={base}/etc.work"
    syscalls.mount("overlay", "/etc", "overlay", 0, layers)
    (base / "sysctl").mkdir()
    for name in (name for name in _SYSCTLS if Path("/proc/sys", name).exists()):
        copy = base / "sysctl" / name.replace("/", ".")
        copy.write_text(Path("/proc/sys", name).read_text())
        syscalls.bind(str(copy), f"/proc/sys/{name}")
    # As an init of a machine has it: what a pod mounts with Bidirectional is there for others.
    syscalls.mount("", "/", flags=syscalls.MS_REC | _MS_SHARED)
    for command in (
        "ip link set lo up",
        "ip link add eth0 type veth peer name wire",  # a kubelet wants a default route
        "ip link set wire up",
        "ip link set eth0 up",
        f"ip address add {ADDRESS}/24 dev eth0",
        "ip route add default dev eth0",
    ):
        subprocess.run(command.split(), check=True, stdout=sys.stderr)


def _mount_cgroups(target: Path, hierarchies: list[str]) -> None:
    """Mounts the hierarchies of version 1, or the one of version 2, in which this process makes
    room: its cgroup is the root of all that a kubelet makes, so no process may be in it.
    """
    if UNIFIED in hierarchies:
        syscalls.mount("cgroup2", str(target), "cgroup2")
        (target / LEAF).mkdir()
        (target / LEAF / "cgroup.procs").write_text("0")
        return
    syscalls.mount("tmpfs", str(target), "tmpfs", 0, "mode=755")
    for names in hierarchies:
        own = target / names.removeprefix("name=")
        own.mkdir()
        options = f"none,{names}" if names.startswith("name=") else names
        syscalls.mount("cgroup", str(own), "cgroup", 0, options)


def _connection(server: str, authority: str) -> HTTPConnection:
    """Returns a connection that is made by its first request.

    Args:
        authority: file with who signed a certificate.
    """
    parts = urlsplit(server)
    if parts.scheme == "http":
        return HTTPConnection(parts.netloc, timeout=_GET_S)
    context = ssl.create_default_context(cafile=authority)
    return HTTPSConnection(parts.netloc, timeout=_GET_S, context=context)


class Init:
    """What is running, by name."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._statuses: dict[str, int | None] = {}
        self._started: list[subprocess.Popen[bytes]] = []
        self._again: dict[str, tuple[int, dict[str, Any]]] = {}  # starts so far, and how
        self._connections: dict[str, HTTPConnection] = {}  # by scheme, host and port

    def reap(self) -> None:
        """Takes notice of what has ended, orphans among it."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid in self._names:
                name = self._names.pop(pid)
                self._statuses[name] = os.waitstatus_to_exitcode(status)
                self._start_again(name)

    def _start_again(self, name: str) -> None:
        starts, how = self._again.get(name, (_MOST_STARTS, {}))
        if starts < _MOST_STARTS:
            self._start(name, **how)
            self._again[name] = starts + 1, how

    def answer(self, order: dict[str, Any]) -> dict[str, Any]:
        """Does what it is told and returns what became of it."""
        do: Callable[..., dict[str, Any]] = getattr(self, f"do_{order.pop('do')}")
        return do(**order)

    def do_start(
        self, name: str, argv: list[str], env: dict[str, str], log: str, again: bool
    ) -> dict[str, Any]:
        self._start(name, argv, env, log)
        if again:
            self._again[name] = 1, {"argv": argv, "env": env, "log": log}
        return {}

    def _start(self, name: str, argv: list[str], env: dict[str, str], log: str) -> None:
        with open(log, "ab") as output:
            process = subprocess.Popen(
                argv,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._started.append(process)  # kept, so that nobody but `reap` waits for it
        self._names[process.pid] = name
        self._statuses[name] = None

    def do_run(self, argv: list[str], env: dict[str, str], timeout: float) -> dict[str, Any]:
        try:
            done = subprocess.run(
                argv,
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"status": 124, "out": "", "err": f"not done after {timeout} s"}
        return {"status": done.returncode, "out": done.stdout, "err": done.stderr}

    def do_status(self, name: str) -> dict[str, Any]:
        self.reap()
        return {"status": self._statuses[name]}

    def do_end(self, name: str, number: int) -> dict[str, Any]:
        self.reap()
        self._again.pop(name, None)
        for pid in [pid for pid, each in self._names.items() if each == name]:
            os.kill(pid, number)
        self.reap()
        return {}

    def do_signal(self, pid: int, number: int) -> dict[str, Any]:
        os.kill(pid, number)
        self.reap()
        return {}

    def do_get(self, url: str, token: str = "", authority: str = "") -> dict[str, Any]:
        parts = urlsplit(url)
        server = f"{parts.scheme}://{parts.netloc}"
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        # Most callers that wait ask the same server again and again.
        is_kept = server in self._connections
        connection = self._connections.get(server) or _connection(server, authority)
        try:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            body = response.read().decode()
        except (OSError, HTTPException) as error:
            connection.close()
            if self._connections.pop(server, None) and is_kept:  # it may have been restarted
                return self.do_get(url, token, authority)
            return {"status": 0, "body": str(error)}
        self._connections[server] = connection
        return {"status": response.status, "body": body}

    def do_reboot(self, keep: list[str]) -> dict[str, Any]:
        self._again = {name: each for name, each in self._again.items() if name in keep}
        node_reboot.turn_off([p for p, name in self._names.items() if name in keep], self.reap)
        return {}


def main() -> None:
    """Serves until stdin ends; every process of the node ends with this one."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    lay_out(Path.cwd(), sys.argv[1:])
    init = Init()
    print(json.dumps({"address": ADDRESS}), flush=True)
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin.buffer, selectors.EVENT_READ)
    while True:
        if not selector.select(_REAP_EVERY_S):
            init.reap()
            continue
        line = sys.stdin.buffer.readline()  # one order at a time: nothing waits behind it
        if not line:
            return
        print(json.dumps(init.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
