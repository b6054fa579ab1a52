"""A launch-bound program of several kinds of kernels, and calibrations that make its calls tell."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.sim import PROFILES, Machine
from libvgpu.sim.calibration import call_names, find_calibration
from support import Compile
from support.lines import Listening, expect, start_listening
from support.sim.driver import driver_version


@dataclass(frozen=True)
class Told:
    """What a `KindsLoop` has done so far.

    Attributes:
        launches: so many.
        slow: of those, the ones that took longer than its program was told is slow.
        asked_ns: GPU time that all of them last.
    """

    launches: int
    slow: int
    asked_ns: int

    def __sub__(self, before: "Told") -> "Told":
        return Told(
            self.launches - before.launches,
            self.slow - before.slow,
            self.asked_ns - before.asked_ns,
        )


class KindsLoop(Listening):
    """A running ``kinds_loop.c``."""

    def __init__(self, program: Path, env: Mapping[str, str], *arguments: int) -> None:
        super().__init__(start_listening([str(program), *map(str, arguments)], env))
        expect(self.process)

    def ask(self, command: str = "tell") -> Told:
        """Gives it a command and returns what it has done by then."""
        self.tell(command)
        return Told(*map(int, self.hear().split()))


def build_loop(compile_program: Compile) -> Path:
    """Returns the compiled program."""
    return compile_program("kinds_loop.c", flags=(f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1"))


def costly_machine(folder: Path, count: int = 1, **call_ns: int) -> Machine:
    """Makes a machine of measured H100s, on which the named calls cost the host something else."""
    calibration = find_calibration("h100")
    costs = {**dict(zip(call_names(), calibration.call_ns, strict=True)), **call_ns}
    calibration = replace(calibration, call_ns=tuple(costs[name] for name in call_names()))
    profile = replace(PROFILES["h100-80g"], calibration=calibration)
    return Machine.create([profile] * count, folder / "calibrated", driver_version())
