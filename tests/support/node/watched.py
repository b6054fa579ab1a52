"""The agent as its users start it on a simulated machine, and programs in containers of its pods.

A container here is a mount namespace of its own that has the `limits` of its slice mounted, as a
runtime does it; that is what the agent tells it by. Its programs run with the shim, or past it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from libvgpu import region
from libvgpu.artifacts import shim_path
from libvgpu.limits import DeviceLimit
from support import CLIENT_PATH, warm
from support.lines import next_line, start_listening
from support.node.simulated import CONFIG, SimulatedNode
from support.sim.programs import PRELUDE

TERMINATE = CONFIG + "watch: {unaccounted: terminate}\n"
_CONTAINER = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'

#: Takes a number of bytes by a plain allocation, says so, and ends with its input.
HOLD = """
open_context()
held = [check(cuda.cuMemAlloc(int(sys.argv[1])))]
say(ready=os.getpid())
sys.stdin.read()
"""


def can_contain() -> bool:
    """Returns whether this user may make mount namespaces and mount in them."""
    command = ["unshare", "-m", "mount", "--bind", "/tmp", "/tmp"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@dataclass
class Contained:
    """One container of a pod: where its slice is, and its programs."""

    node: "WatchedNode"
    directory: Path
    programs: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def allocation_id(self) -> str:
        return self.directory.name

    @property
    def devices(self) -> tuple[DeviceLimit, ...]:
        return region.read_limits(self.directory).limits.devices

    def limit(self) -> DeviceLimit:
        (device,) = self.devices
        return device

    def start(self, code: str, *arguments: object, shim: bool = True) -> int:
        """Starts a program; returns its pid once it has said that it is ready."""
        command = [sys.executable, "-c", PRELUDE + code, *map(str, arguments)]
        return first_word(self.spawn(command, shim=shim))

    def spawn(self, command: Sequence[str], *, shim: bool = True) -> subprocess.Popen[str]:
        """Starts a command."""
        target = self.node.base / f"mounted-{self.allocation_id}"
        target.touch()
        env = {"VGPU_SIM_VISIBLE": ",".join(device.uuid for device in self.devices)}
        if shim:
            env |= {"LD_PRELOAD": str(shim_path()), "VGPU_DIR": str(self.directory)}
        inside = ["env", *(f"{key}={value}" for key, value in env.items()), *command]
        self.programs.append(self.node.spawn([
            "unshare", "-m", "sh", "-c", _CONTAINER, "sh", str(self.directory / "limits"),
            str(target), *inside,
        ]))  # fmt: skip
        return self.programs[-1]

    def end(self) -> None:
        """Ends its programs."""
        for program in self.programs:
            program.kill()
            program.communicate()
        self.programs.clear()


def first_word(program: subprocess.Popen[str]) -> int:
    """Returns what a program says when it is ready."""
    return int(json.loads(next_line(program))["ready"])


class WatchedNode(SimulatedNode):
    """One with containers, and programs in none."""

    def __init__(
        self,
        base: Path,
        spec: str = "t4",
        config: str = CONFIG,
        prefix: Sequence[str] = (),
        program: Sequence[str] = ("-m", "deviceplugin"),
    ) -> None:
        self.containers: list[Contained] = []
        self.strangers: list[subprocess.Popen[str]] = []
        super().__init__(base, spec, config, prefix=prefix, program=program)

    def contain(self, name: str, memory_gib: int = 4, core: int = 20) -> Contained:
        """Admits a pod of one container, and starts that."""
        pod = self.admit(name, vgpu_core=core, vgpu_memory=memory_gib)
        self.containers.append(Contained(self, self.slice_of(pod)))
        return self.containers[-1]

    def start_stranger(self, code: str, *arguments: object) -> int:
        """Starts a program in no container; returns its pid once it is ready."""
        command = [sys.executable, "-c", PRELUDE + code, *map(str, arguments)]
        self.strangers.append(self.spawn(command))
        return first_word(self.strangers[-1])

    def spawn(self, command: Sequence[str]) -> subprocess.Popen[str]:
        """Starts a command on the machine, without the shim."""
        base = {key: value for key, value in os.environ.items() if not key.startswith("CUDA_")}
        base["PYTHONPATH"] = CLIENT_PATH
        return start_listening(command, self.machine.environment(base))

    def lines(self, message: str) -> list[str]:
        """Returns the lines of the agent's log with a message."""
        return [line for line in self.log.splitlines() if f'msg="{message}"' in line]

    def metric(self, name: str, **labels: str) -> float:
        """Returns the sum of the series of a metric that have these labels."""
        text = self.page("/metrics")
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        rows = [row for row in text.splitlines() if row.split("{")[0].split(" ")[0] == name]
        assert rows, f"{name} has no series"
        return sum(float(r.rpartition(" ")[2]) for r in rows if all(w in r for w in wanted))

    def doctor(self) -> list[dict[str, str]]:
        """Returns what `vgpuctl doctor` finds of the watch."""
        words = ["-m", "vgpuctl", "doctor", "-o", "json", "--run-dir", str(self.run_dir)]
        done = warm.run(words, self.machine.environment(os.environ))
        return [finding for finding in json.loads(done.stdout) if finding["check"] == "watch"]

    def close(self) -> None:
        """Ends all of it; a test may have stopped the agent."""
        for container in self.containers:
            container.end()
        for program in self.strangers:
            program.kill()
            program.communicate()
        super().close()
