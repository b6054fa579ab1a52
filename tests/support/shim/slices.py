"""Slices of a simulated machine, and programs started under them."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from libvgpu.artifacts import shim_path
from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.region import ContainerUsage, create, read_limits, read_usage, write_limits
from libvgpu.sim import Machine
from support import CLIENT_PATH, warm
from support.lines import start_listening
from support.waiting import PATIENCE_S


def under_shim(directory: Path) -> dict[str, str]:
    """Returns the variables that put a program under the shim, in the slice there."""
    libraries = f"{os.environ.get('LD_PRELOAD', '')} {shim_path()}".lstrip()
    return {"LD_PRELOAD": libraries, "VGPU_DIR": str(directory)}


@dataclass
class Slice:
    """One slice: its directory, and the machine it is of."""

    machine: Machine
    directory: Path
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def environment(self, *, shim: bool = True) -> dict[str, str]:
        base = dict(os.environ, PYTHONPATH=CLIENT_PATH)
        environment = self.machine.environment(base)
        return environment | under_shim(self.directory) if shim else environment

    def start(
        self, code: str, *arguments: str, shim: bool = True, prefix: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        """Starts a Python program (its text) under the slice; stdin and stdout are pipes.

        Args:
            prefix: the command that runs it, such as ``unshare``.
        """
        process = start_listening(
            [*prefix, sys.executable, "-c", code, *arguments], self.environment(shim=shim)
        )
        self.processes.append(process)
        return process

    def run(
        self, code: str, *arguments: str, shim: bool = True, prefix: Sequence[str] = ()
    ) -> list[str]:
        """Runs a program to its end and returns the words it printed."""
        if not prefix:
            done = warm.run(["-c", code, *arguments], self.environment(shim=shim))
            assert done.returncode == 0, done.stderr
            return done.stdout.split()
        process = self.start(code, *arguments, shim=shim, prefix=prefix)
        stdout, stderr = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, stderr
        return stdout.split()

    def change(self, **values: object) -> None:
        """Changes fields of the first device of `limits` in place."""
        limits = read_limits(self.directory).limits
        first = replace(limits.devices[0], **values)  # type: ignore[arg-type]
        write_limits(self.directory, replace(limits, devices=(first, *limits.devices[1:])))

    def usage(self) -> ContainerUsage:
        return read_usage(self.directory)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


#: ``slice_of(machine, memory_bytes=…, core_percent=…)``
SliceOf = Callable[..., Slice]


def make_slice(
    machine: Machine,
    directory: Path,
    *,
    memory_bytes: int,
    core_percent: int = 100,
    gpus: int = 1,
    first: int = 0,
) -> Slice:
    """Makes a slice of that many GPUs, from the `first` on, context cost as their profile says."""
    limits = tuple(
        DeviceLimit(
            uuid=device.uuid,
            memory_limit_bytes=memory_bytes,
            context_bytes=device.profile.context_bytes,
            core_percent=core_percent,
        )
        for device in machine.devices[first : first + gpus]
    )
    create(directory, ContainerLimits("test", Family.VGPU, limits))
    return Slice(machine, directory)
