"""The GPUs a slice can be cut from: those of the driver, or of simulated machines.

The driver's come through the node agent's inventory, so that both name and count them alike.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Final

from deviceplugin.inventory.nvml import NvmlInventory
from deviceplugin.model.gpus import Gpu, SickGpu
from libvgpu import artifacts
from libvgpu.errors import InventoryError, SimulationError
from libvgpu.sim import named
from libvgpu.sim.machine import Machine
from libvgpu.sim.mig_parts import mig_devices
from libvgpu.sim.profiles import Profile
from libvgpu.sim.spec import MachineSpec

from .run.requests import GpuCandidate

DRIVER: Final = "driver"
SIMULATED: Final = "simulated"
NO_DRIVER_HINT = "install the NVIDIA driver, or use a simulated GPU: --simulate h100"


def gpus_of_driver() -> tuple[GpuCandidate, ...]:
    """Returns the GPUs that the NVML the loader finds lists.

    Raises:
        InventoryError: there is no driver, or it does not answer.
    """
    return driver_listing()[0]


def driver_listing() -> tuple[tuple[GpuCandidate, ...], tuple[SickGpu, ...]]:
    """Returns the GPUs that work, and those that do not.

    Raises:
        InventoryError: as `gpus_of_driver`.
    """
    try:
        found = NvmlInventory().listing()
    except InventoryError as error:
        raise InventoryError(error.message, NO_DRIVER_HINT) from None
    gpus = (_of_driver(part) for gpu in found.gpus for part in (gpu, *gpu.mig_devices))
    return tuple(gpus), found.sick


def _of_driver(gpu: Gpu) -> GpuCandidate:
    return GpuCandidate(
        gpu.index,
        gpu.uuid,
        gpu.name,
        gpu.memory_bytes,
        gpu.context_bytes,
        gpu.driver,
        mig_number=gpu.mig.number if gpu.mig else None,
        is_cut=gpu.is_mig_enabled,
    )


def gpus_of_spec(spec: MachineSpec) -> tuple[GpuCandidate, ...]:
    """Returns the GPUs that a simulated machine of this kind has, before there is one."""
    return tuple(
        candidate
        for index, profile in enumerate(spec.profiles)
        for candidate in (
            _simulated(index, "", profile, is_cut=profile.mig_layout is not None),
            *(
                _simulated(index, "", part, number)
                for number, part in enumerate(mig_devices(profile))
            ),
        )
    )


def _simulated(
    index: int, uuid: str, profile: Profile, mig_number: int | None = None, is_cut: bool = False
) -> GpuCandidate:
    return GpuCandidate(
        index,
        uuid,
        profile.product,
        profile.memory_bytes,
        profile.context_bytes,
        mig_number=mig_number,
        is_cut=is_cut,
    )


def gpus_of_machine(machine: Machine) -> tuple[GpuCandidate, ...]:
    """Returns the GPUs of a simulated machine, each with its MIG devices behind it."""
    found: list[GpuCandidate] = []
    for device in machine.devices:
        is_cut = machine.mig_layout(device.index) is not None
        found.append(_simulated(device.index, device.uuid, device.profile, is_cut=is_cut))
        parts = [part for part in machine.instances if part.gpu == device.index]
        found += [
            _simulated(device.index, part.uuid, part.profile, number)
            for number, part in enumerate(parts)
        ]
    return tuple(found)


def simulated_machines(unusable: list[SimulationError] | None = None) -> tuple[Machine, ...]:
    """Returns this user's simulated machines, named ones first.

    Args:
        unusable: takes the errors of those that cannot be opened; they are left out.
    """
    found = []
    for directory in sorted(named.machines_root().iterdir()):
        try:
            if directory.is_dir() and named.has_machine(directory):
                found.append(Machine.open(directory))
        except SimulationError as error:
            if unusable is not None:
                unusable.append(error)
    return tuple(found)


def is_new(spec: MachineSpec) -> bool:
    """Returns whether acquiring the machine would make one (another may, in between)."""
    if spec.name is None:
        return True
    return not named.has_machine(named.named_directory(spec.name))


@contextlib.contextmanager
def acquired(spec: MachineSpec) -> Iterator[Machine]:
    """Gives the simulated machine of a spec; an unnamed one is gone when the context ends."""
    machine = named.acquire(spec)
    try:
        yield machine
    finally:
        named.release(machine)


def search_path(environment: Mapping[str, str], simulated: bool) -> str:
    """Returns PATH as a command will see it, which on a simulated machine has its tools."""
    path = environment.get("PATH", os.defpath)
    return f"{artifacts.SIM_BINARY_DIR}{os.pathsep}{path}" if simulated else path
