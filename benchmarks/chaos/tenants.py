"""The tenants: pods of one container, with programs in it, or an attacker.

A program runs in a mount namespace that has what the agent's answer mounts below /run, as a
container runtime makes it, and is given its UUID alone. So its shim is a managed one.
"""

import os
import signal
import subprocess
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from deviceplugin.testing import AdmittedPod, RunOptions
from libvgpu import region
from libvgpu.errors import RegionError, RegionUnknownError

from .board import Board
from .invariants import Given, Slice

LIMITS = "/run/vgpu/limits"
_FAILED = 3
_CONTAINER = """
mount -t tmpfs -o mode=755 vgpu /run || exit 9
while [ "$1" != -- ]; do
    if [ -d "$1" ]; then mkdir -p "$2"; else mkdir -p "${2%/*}"; : >"$2"; fi
    mount --bind "$1" "$2" || exit 9
    shift 2
done
shift
exec env "$@"
"""


def given_of(pods: Iterable[AdmittedPod], init: bool = False) -> list[Given]:
    """Returns what the kubelet says that containers have.

    Args:
        init: init containers, too, whose units later ones may reuse.
    """
    found = []
    for pod in pods:
        for container in pod.containers:
            if init or not container.init:
                mounts = (mount for answer in container.answers.values() for mount in answer.mounts)
                files = (m.host_path for m in mounts if m.container_path == LIMITS)
                name = f"{pod.manifest.name}/{container.manifest.name}"
                found.append(Given(name, dict(container.devices), tuple(dict.fromkeys(files))))
    return found


@dataclass
class Program:
    """A process of a tenant; ``is_killed`` by us."""

    process: subprocess.Popen[bytes]
    seat: int
    began_s: float
    is_killed: bool = False

    def signal(self, number: int) -> None:
        """Sends it a signal."""
        self.is_killed |= number == signal.SIGKILL
        self.process.send_signal(number)


@dataclass
class Tenant:
    """A pod of one container.

    Attributes:
        options: what the runtime was told; None until the container could start.
        first: its files, as they were then.
        is_running: its container was started and has not ended.
        starts_from_s: when the kubelet may start it.
        attack: what it does, if it is hostile.
        ends: of that.
    """

    pod: AdmittedPod
    processes: int
    options: RunOptions | None = None
    first: Slice | None = None
    is_running: bool = False
    starts_from_s: float = 0.0
    programs: list[Program] = field(default_factory=list)
    attack: str = ""
    ends: ExitStack = field(default_factory=ExitStack)

    @property
    def name(self) -> str:
        return self.pod.manifest.name

    @property
    def directory(self) -> Path:
        """The slice, once there is one."""
        answer = next(iter(self.pod.containers[0].answers.values()))
        return Path(next(m.host_path for m in answer.mounts if m.container_path == LIMITS)).parent

    @property
    def uuid(self) -> str:
        """Its GPU, once it has started."""
        assert self.first is not None and self.first.limits is not None
        return self.first.limits.devices[0].uuid

    @property
    def limit_bytes(self) -> int:
        """Its memory limit, once it has started."""
        assert self.first is not None and self.first.limits is not None
        return self.first.limits.devices[0].memory_limit_bytes

    @property
    def is_mps(self) -> bool:
        return any("/mps-" in resource for resource in self.pod.containers[0].manifest.limits)

    def given(self) -> Given:
        """Returns what the kubelet says it has."""
        (found,) = given_of([self.pod])
        return found

    def files(self) -> Slice:
        """Returns how its files are now."""
        directory = self.directory
        try:
            inode = (directory / "limits").stat().st_ino
        except FileNotFoundError:
            return Slice(self.name, None, None)
        try:
            return Slice(self.name, inode, region.read_limits(directory).limits)
        except RegionUnknownError:  # a lease of an attacker keeps it busy: it is whole
            return Slice(self.name, inode, self.first.limits if self.first else None)
        except RegionError:
            return Slice(self.name, inode, None)

    def end_programs(self, board: Board) -> None:
        """Ends all that it runs, and with that its container."""
        for program in self.programs:
            program.signal(signal.SIGKILL)
            program.process.wait()
            board.leave(program.seat)
        self.programs, self.is_running = [], False
        self.ends.close()

    def binds(self) -> list[tuple[str, str, bool]]:
        """Returns its mounts: the host's path, its own, and whether it may only read."""
        assert self.options is not None
        return [(m.host_path, m.container_path, m.read_only) for m in self.options.mounts]


def start_program(
    tenant: Tenant, client: Path, board: Board, environment: dict[str, str], log: Path,
    seed: int, now_s: float, context_bytes: int,
) -> None:  # fmt: skip
    """Starts a program in a tenant's container.

    Args:
        environment: of the machine.
        log: where it may say something.
        context_bytes: what each context takes of its slice.
    """
    assert tenant.options is not None
    binds = [(host, here) for host, here, _ in tenant.binds() if here.startswith("/run/")]
    library = next(here for _, here in binds if here.endswith("libvgpu.so"))
    variables = [f"{k}={v}" for k, v in tenant.options.envs.items() if k.startswith("CUDA_MPS")]
    seat = board.take_seat()
    room = (tenant.limit_bytes // 2 - tenant.processes * context_bytes) // tenant.processes
    words = [str(word) for word in (client, board.path, seat, tenant.limit_bytes, room, seed)]
    with log.open("ab") as errors:
        process = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", _CONTAINER, "sh", *(p for b in binds for p in b), "--",
             f"LD_PRELOAD={library}", f"VGPU_SIM_VISIBLE={tenant.uuid}", *variables, *words],
            env={**environment, "PATH": os.defpath}, stdin=subprocess.DEVNULL,
            stdout=errors, stderr=errors,
        )  # fmt: skip
    tenant.programs.append(Program(process, seat, now_s))


def why_ended(program: Program, board: Board, may_fail: bool) -> str:
    """Returns why a program should not have ended, or an empty text.

    Args:
        may_fail: its GPU had a fault since it began.
    """
    status = program.process.returncode
    if program.is_killed or (status == _FAILED and may_fail):
        return ""
    return board.error(program.seat) if status == _FAILED else f"it ended with status {status}"
