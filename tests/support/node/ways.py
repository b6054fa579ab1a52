"""Containers of real processes on a simulated GPU, and the watch, tick by tick.

What the kernel shows of the processes is real: mounts, threads, namespaces, the locks in `usage`.
Only their cgroups are made up, since a test is in no pod, and the clock, which a test winds.
"""

import fcntl
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import pytest

from deviceplugin.watch import process_attribution, procfs
from deviceplugin.watch.nvml_processes import GpuReading
from libvgpu.artifacts import shim_path
from libvgpu.sim import Machine
from libvgpu.usage import is_slot_held
from support import CLIENT_PATH
from support.lines import next_line, start_listening, tell
from support.node.fake_proc import OTHER_UID, UID, pod_path
from support.node.watch_world import WatchWorld

#: Looks at a GPU that is in use, and at one that was idle, as the thread of the watch has them.
ACTIVE_S, IDLE_S = 1.05, 1.75
BAR_S = 5.0
_CONTAINER = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
_READ = """
import json, sys
from deviceplugin.watch.nvml_processes import read_gpus
for uuid in sys.stdin:
    reading = read_gpus([uuid.strip()])[uuid.strip()]
    print(json.dumps([list(reading.memory_bytes.items()), reading.used_bytes]), flush=True)
"""
_SHOWN = ("stat", "status", "mountinfo", "maps", "ns")


class WaysWorld(WatchWorld):
    """A watch of what real processes do to the GPU of a simulated machine."""

    def __init__(
        self,
        path: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        machine: Machine,
    ) -> None:
        super().__init__(path, monkeypatch, caplog)
        monkeypatch.setattr(process_attribution, "read_mounts", procfs.read_mounts)
        monkeypatch.setattr("libvgpu.ledger_view.is_slot_held", is_slot_held)
        self.base, self.machine = path, machine
        self.gpu = machine.devices[0].uuid
        self.gpus = [self.gpu]
        self.started: list[subprocess.Popen[str]] = []
        self._held: list[IO[bytes]] = []
        self._neighbours: set[int] = set()
        base = {name: text for name, text in os.environ.items() if not name.startswith("CUDA_")}
        self.environment = machine.environment(base | {"PYTHONPATH": CLIENT_PATH})
        self._nvml = start_listening([sys.executable, "-c", _READ], self.environment)

    def pids(self) -> dict[int, int | None]:
        """Returns what NVML says of the processes on the GPU."""
        return dict(self.read([self.gpu])[self.gpu].memory_bytes)

    def read(self, uuids: Sequence[str]) -> dict[str, GpuReading]:
        tell(self._nvml, self.gpu)
        rows, used_bytes = json.loads(next_line(self._nvml))
        return {self.gpu: GpuReading(dict(rows), used_bytes)}

    def start(self, command: Sequence[str | Path], name: str = "a", *, shim: bool = False) -> int:
        """Starts a command in the container of a slice; returns the pid that it says."""
        directory, target = self.allocations / name, self.base / f"mounted-{name}"
        target.touch()
        loaded = [f"LD_PRELOAD={shim_path()}", f"VGPU_DIR={directory}"] if shim else []
        program = start_listening(
            ["unshare", "-m", "sh", "-c", _CONTAINER, "sh", directory / "limits", target,
             "env", *loaded, *command],
            self.environment,
        )  # fmt: skip
        self.started.append(program)
        pid = int(json.loads(next_line(program))["ready"])
        if name != "a":
            self._neighbours.add(pid)
        return pid

    def hold_lock(self, path: Path, at: int) -> None:
        """Locks a byte of a file for as long as the test runs, as the shim does for a process."""
        self._held.append(path.open("r+b"))
        wanted = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, at, 1, 0)
        fcntl.fcntl(self._held[-1], fcntl.F_OFD_SETLK, wanted)

    def show(self) -> None:
        """Has the watch see the processes on the GPU, each in the cgroup of its pod."""
        for pid in self.pids():
            self.show_one(pid, pod_path(OTHER_UID if pid in self._neighbours else UID))

    def show_one(self, pid: int, cgroup: str) -> None:
        """Has the watch see a process as the kernel shows it, in a cgroup."""
        try:
            threads = [f"task/{name}" for name in os.listdir(f"/proc/{pid}/task")]
        except FileNotFoundError:
            return
        for place in ("", *threads):
            directory = self.proc.path / str(pid) / place
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "cgroup").write_text(f"0::{cgroup}\n")
            for name in _SHOWN:
                if not (directory / name).is_symlink():
                    (directory / name).symlink_to(Path("/proc") / str(pid) / place / name)

    def ticks(self) -> Iterator[float]:
        """Winds the clock over the looks of the bar, after an idle one; yields what has passed."""
        passed_s = IDLE_S
        self.now_s += IDLE_S
        while passed_s <= BAR_S:
            self.show()
            self.watch.look()
            yield passed_s
            passed_s += ACTIVE_S
            self.now_s += ACTIVE_S

    def close(self) -> None:
        """Ends all of it, and what its programs have left behind."""
        for pid in self.pids():
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue
        for file in self._held:
            file.close()
        for program in (*self.started, self._nvml):
            program.kill()
            program.communicate()
