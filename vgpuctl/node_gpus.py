"""The GPUs of this node: those of the driver, and of this user's simulated machines."""

import os

from libvgpu.errors import InventoryError

from . import gpu_choice as gpu_sources
from .observe import SeenGpu


def seen_gpus() -> tuple[list[SeenGpu], str]:
    """Returns the GPUs of driver and simulated machines, and why the driver does not list some."""
    seen, problem = [], ""
    # Under `vgpuctl sim run` the driver itself is the simulated one.
    source = gpu_sources.SIMULATED if "VGPU_SIM_MACHINE" in os.environ else gpu_sources.DRIVER
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
