"""In a program under a slice: what the ledger says is held, and what the simulated GPU says.

The machine is read without `libvgpu.sim`, which takes longer to load than the rest of a program.
"""

import os
from pathlib import Path

from libvgpu._native import ffi, lib
from libvgpu.region import read_usage


def ledger_bytes(device: int = 0) -> int:
    """Returns what the container is charged on that device of the slice."""
    return read_usage(Path(os.environ["VGPU_DIR"])).devices[device].used_bytes


def kind_bytes(kind: str, device: int = 0) -> int:
    """Returns what the container is charged of a kind."""
    return read_usage(Path(os.environ["VGPU_DIR"])).devices[device].kind_bytes[kind]


def device_bytes(device: int = 0) -> int:
    """Returns what all processes hold of that GPU of the machine."""
    machine, books = ffi.new("struct sim_machine **"), ffi.new("struct sim_device_books *")
    assert lib.sim_machine_open(os.fsencode(os.environ["VGPU_SIM_MACHINE"]), machine) == 0
    lib.sim_machine_books(machine[0], device, books)
    lib.sim_machine_close(machine[0])
    return int(books.memory_used_bytes)


def agree(device: int = 0) -> int:
    """Returns what is held, once both say the same."""
    charged, held = ledger_bytes(device), device_bytes(device)
    assert charged == held, f"the ledger says {charged}, the GPU {held}"
    return held
