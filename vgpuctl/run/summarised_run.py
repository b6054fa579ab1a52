"""Runs a command in its slice and says at the end, on stderr, what it used of each GPU.

The figures come from the slice's files, which must be there still; the exit status is the command's
whatever happens to the summary.
"""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from libvgpu import region
from libvgpu.errors import RegionError
from libvgpu.limits import DeviceLimit

from .account import RunAccount, Together
from .foreground import SideWork, run_in_foreground
from .summary import EndedRun, lines


@dataclass(frozen=True, slots=True)
class SummarisedRun:
    """A slice that a command is to be run in.

    Attributes:
        name: of the run; empty where it has none.
        allocation_id: of its slice.
        directory: of its slice.
        gpus: how each of its devices is called.
        devices: what it was made with.
    """

    name: str
    allocation_id: str
    directory: Path
    gpus: Sequence[str]
    devices: Sequence[DeviceLimit]

    def run(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        side_work: SideWork,
        every_s: float,
    ) -> int:
        """Runs the command as `run_in_foreground` does, and says the summary."""
        account, began_s = RunAccount(self.directory, len(self.devices)), time.monotonic()
        work = Together((side_work, account))
        status = run_in_foreground(command, environment, work, every_s)
        ended = EndedRun(
            who=self.name or " ".join(command),
            allocation_id=self.allocation_id,
            elapsed_s=time.monotonic() - began_s,
            status=status,
            gpus=self.gpus,
            limits=self._limits(),
        )
        try:
            click.echo("\n".join(lines(ended, account.result())), err=True)
        except OSError:
            # The reader went away. Python would try again at its end, and exit with 120.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
        return status

    def _limits(self) -> Sequence[DeviceLimit]:
        """Returns what holds now: `vgpuctl set` may have changed it, and the program anything."""
        try:
            return region.read_limits(self.directory).limits.devices
        except RegionError:
            return self.devices
