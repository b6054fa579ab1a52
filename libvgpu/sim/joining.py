"""Whether a named machine is what a spec asks for, so that a command may join it.

What its GPUs are cut into may be changed while it runs. It is joined by who asks for what they are
now, or for what they were when it was made, which stands in its file ``made``.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ..errors import SimulationError
from .damage import cannot_make
from .machine import Machine
from .mig import format_layout
from .profiles import Profile
from .spec import MachineSpec, format_driver_version

_MADE = "made"


def _with_layout(profile: Profile) -> str:
    if profile.mig_layout is None:
        return profile.name
    by_start = sorted(profile.mig_layout, key=lambda placed: placed.start)
    return f"{profile.name}/mig={format_layout(by_start)}"


def _words(profiles: Iterable[Profile]) -> str:
    return ", ".join(map(_with_layout, profiles))


def note_made(directory: Path, spec: MachineSpec) -> None:
    """Keeps what a new machine is made as.

    Raises:
        SimulationError: it cannot be written.
    """
    try:
        (directory / _MADE).write_text(_words(spec.profiles) + "\n")
    except OSError as error:
        raise cannot_make(directory, error.errno or 0) from error


def check_same(machine: Machine, spec: MachineSpec) -> None:
    """Refuses to join a machine that is another one than the spec asks for.

    Raises:
        SimulationError: it has other GPUs, or another driver.
    """
    present = [
        replace(device.profile, mig_layout=machine.mig_layout(device.index))
        for device in machine.devices
    ]
    known = [_words(present)]
    with suppress(OSError):  # a machine of `Machine.create`, put there by hand
        known.append((machine.directory / _MADE).read_text().rstrip("\n"))
    hint = "use another name, or that machine as it is"
    if _words(spec.profiles) not in known:
        raise SimulationError(
            f"the simulated machine @{spec.name} has other GPUs: {known[0]}", hint=hint
        )
    if [device.profile for device in machine.devices] != [
        replace(profile, mig_layout=None) for profile in spec.profiles
    ]:
        raise SimulationError(
            f"the simulated machine @{spec.name} has GPUs of the same names, {known[0]}, but of "
            "another profile",
            hint=hint,
        )
    if spec.release not in (None, machine.release):
        raise SimulationError(
            f"the simulated machine @{spec.name} has another driver: {machine.release.name}",
            hint=hint,
        )
    if spec.driver_version not in (None, machine.driver_version):
        raise SimulationError(
            f"the simulated machine @{spec.name} has another driver: CUDA "
            f"{format_driver_version(machine.driver_version)}",
            hint=hint,
        )
