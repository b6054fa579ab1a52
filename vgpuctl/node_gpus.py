"""The GPUs of this node: those of the driver, and of this user's simulated machines."""

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from libvgpu.errors import ConfigError, InventoryError

from . import gpu_choice as gpu_sources
from .observe import SeenGpu
from .output.rows import GpuSource

if TYPE_CHECKING:
    from deviceplugin.model.agent_config import AgentConfig
    from deviceplugin.model.gpus import SickGpu
    from deviceplugin.policy.devices.known_gpus import KnownGpus


def gpus_meant_by(
    config: "AgentConfig", state_dir: Path
) -> tuple["KnownGpus", tuple["SickGpu", ...]]:
    """Returns the GPUs of the driver with the indexes that a config means on this node, and those
    that do not work.

    Args:
        state_dir: the agent's; where it may not be read, the indexes are those of NVML.

    Raises:
        InventoryError: the driver lists none.
    """
    from deviceplugin.inventory.nvml import NvmlInventory
    from deviceplugin.policy.devices.known_gpus import known_at_start
    from deviceplugin.store.kept_config import KeptConfig

    kept = KeptConfig(state_dir)
    with contextlib.suppress(ConfigError):
        kept.load()
    listing = NvmlInventory().listing()
    return known_at_start(listing.gpus, kept.record, config), listing.sick


def seen_gpus() -> tuple[list[SeenGpu], str]:
    """Returns the GPUs of driver and simulated machines, and why the driver does not list some."""
    seen, problem = [], ""
    # Under `vgpuctl sim run` the driver itself is the simulated one.
    is_simulated = "VGPU_SIM_MACHINE" in os.environ
    source: GpuSource = gpu_sources.SIMULATED if is_simulated else gpu_sources.DRIVER
    try:
        gpus, sick = gpu_sources.driver_listing()
        seen = [SeenGpu(gpu, source) for gpu in gpus]
        problem = "; ".join(f"GPU {each} does not work: {each.reason}" for each in sick)
    except InventoryError as error:
        problem = error.message
    known = {found.gpu.uuid for found in seen}
    for machine in gpu_sources.simulated_machines():
        seen += [
            SeenGpu(gpu, gpu_sources.SIMULATED)
            for gpu in gpu_sources.gpus_of_machine(machine)
            if gpu.uuid not in known
        ]
    return seen, problem
