"""In a program under a slice: what the ledger says is held, and what the simulated GPU says."""

import os
from pathlib import Path

from libvgpu.region import read_usage
from libvgpu.sim import Machine


def ledger_bytes(device: int = 0) -> int:
    """Returns what the container is charged on that device of the slice."""
    return read_usage(Path(os.environ["VGPU_DIR"])).devices[device].used_bytes


def kind_bytes(kind: str, device: int = 0) -> int:
    """Returns what the container is charged of a kind."""
    return read_usage(Path(os.environ["VGPU_DIR"])).devices[device].kind_bytes[kind]


def device_bytes(device: int = 0) -> int:
    """Returns what all processes hold of that GPU of the machine."""
    return Machine.open(Path(os.environ["VGPU_SIM_MACHINE"])).books()[device].memory_used_bytes


def agree(device: int = 0) -> int:
    """Returns what is held, once both say the same."""
    charged, held = ledger_bytes(device), device_bytes(device)
    assert charged == held, f"the ledger says {charged}, the GPU {held}"
    return held
