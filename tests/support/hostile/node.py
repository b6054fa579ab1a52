"""A node at work: the agent as its users start it, and neighbours that use their slices."""

import contextlib
import subprocess
import sys
import threading
import urllib.error
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.hostile.container import KINDS, Attackers
from deviceplugin.testing import AdmittedPod
from libvgpu import region
from support import ROOT
from support.lines import expect
from support.node.watched import Contained, WatchedNode
from support.sim.programs import PRELUDE

MIB = 1 << 20
RUN_DIR_SIZE = "64m"  # runDirSize of the chart
_HELD_MIB = 300
_ONE = {"nvidia.com/vgpu-core": 1, "nvidia.com/vgpu-memory": 1}
#: Holds memory, and launches as often as its share allows.
_NEIGHBOUR = """
open_context()
check(cuda.cuMemAlloc(int(sys.argv[1])))
spinner = Spinner(1_000_000)
print("ready", flush=True)
while True:
    spinner.launch()
    check(cuda.cuCtxSynchronize())
"""


def mount_run_directory(path: Path) -> None:
    """Gives a node's run directory a file system of its own, as the chart does."""
    path.mkdir()
    options = f"mode=0700,nosuid,nodev,noexec,size={RUN_DIR_SIZE}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "vgpu", path], check=True)


def unmount_run_directory(path: Path) -> None:
    """Takes it away with all that is mounted below."""
    subprocess.run(["umount", "--recursive", "--lazy", path], check=True)


@dataclass(frozen=True, slots=True)
class Measured:
    """For how long the agent's lock was held, or an `Allocate` took, by `meter`.

    Attributes:
        what: ``held`` or ``allocate``.
        worked_ns: of it, the processor's time.
        waited_ns: of it, waits for others.
        where: the innermost functions of the agent.
    """

    what: str
    worked_ns: int
    waited_ns: int
    where: str

    @property
    def ns(self) -> int:
        """All of it."""
        return self.worked_ns + self.waited_ns


class HostileNode(WatchedNode):
    """One with a measured agent and neighbours."""

    def __init__(self, base: Path, spec: str = "h100*2") -> None:
        self.notes = base / "notes"
        self.notes.touch()
        self._read = 0
        self.neighbours: list[Contained] = []
        self.attackers = Attackers(base)
        mount_run_directory(base / "r")
        program = ("-m", "support.hostile.meter", str(self.notes))
        # Through `env`, since what the server of warm programs has loaded is not measured.
        path = ("env", f"PYTHONPATH={ROOT}:{ROOT / 'tests'}")
        super().__init__(base, spec, prefix=path, program=program)

    def start_neighbours(self, count: int = 2) -> None:
        """Starts pods whose programs work until the end."""
        for number in range(count):
            pod = self.contain(f"neighbour-{number}", memory_gib=1, core=10)
            code = [PRELUDE + _NEIGHBOUR, str(_HELD_MIB * MIB)]
            expect(pod.spawn([sys.executable, "-c", *code]))
            self.neighbours.append(pod)

    def books(self) -> list[tuple[int, bool]]:
        """Returns what each neighbour holds by its ledger in bytes, and whether it lives."""
        return [
            (
                region.read_usage(pod.directory).devices[0].used_bytes,
                all(program.poll() is None for program in pod.programs),
            )
            for pod in self.neighbours
        ]

    def worked_ns(self) -> list[int]:
        """Returns how much GPU time each neighbour has had."""
        usages = (region.read_usage(pod.directory) for pod in self.neighbours)
        return [usage.devices[0].gpu_time_ns for usage in usages]

    def measured(self) -> list[Measured]:
        """Returns what was noted since the last call, the longest last."""
        text = self.notes.read_text()
        lines = [line.split() for line in text[self._read :].splitlines()]
        self._read = len(text)
        found = [Measured(what, int(a), int(b), where) for what, a, b, where in lines]
        return sorted(found, key=lambda each: each.ns)

    def admit_one(self, name: str) -> AdmittedPod:
        """Admits a pod with the smallest slice, and starts its container."""
        pod = self.admit_pod(name, _ONE)
        assert self.limit(pod).memory_limit_bytes == 1 << 30
        return pod

    @contextlib.contextmanager
    def attacked(self, attack: str) -> Iterator[dict[str, dict[str, str]]]:
        """Has a tenant of each kind attack until the block ends.

        Yields:
            What each of them tried first, and how that ended.
        """
        with contextlib.ExitStack() as ends:
            outcomes: dict[str, dict[str, str]] = {}
            for kind in KINDS:
                pod = self.admit_pod(f"hostile-{len(outcomes)}", _ONE)
                ends.callback(self.kubelet.finish, pod)
                mounts = self.kubelet.run_options(pod, "c").mounts
                binds = [(m.host_path, m.container_path, m.read_only) for m in mounts]
                begun = self.attackers.attack(kind, attack, binds)
                outcomes[kind.name] = ends.enter_context(begun)
            yield outcomes

    def close(self) -> None:
        """Ends all of it."""
        self.attackers.close()
        super().close()
        unmount_run_directory(self.run_dir)

    @contextlib.contextmanager
    def watched_health(self) -> Iterator[list[str]]:
        """Asks for ``/healthz`` until the block ends, and collects what was not good."""
        is_over, bad = threading.Event(), list[str]()

        def ask() -> None:
            while not is_over.wait(0.05):
                try:
                    self.page("/healthz")
                except urllib.error.HTTPError as error:
                    bad.append(str(error.read(), "utf-8"))

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            yield bad
        finally:
            is_over.set()
            thread.join()
