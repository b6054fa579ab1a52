"""Which driver the simulated machines of the tests have.

``VGPU_CUDA`` names its CUDA version; without it they have the default one. The fixtures of
``conftest.py``, the exercises and the tests of the shim that make their own machines ask here::

    VGPU_CUDA=12.4 python -m pytest tests/integration/libvgpu/memory/test_memory.py
"""

import os
from pathlib import Path

from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.errors import UsageError
from libvgpu.sim import Machine
from libvgpu.sim.spec import DEFAULT_DRIVER, DRIVER_VERSIONS, format_driver_version

CUDA = "VGPU_CUDA"


def driver_version() -> int:
    """Returns the version of the driver API, 12040 for CUDA 12.4.

    Raises:
        UsageError: such a driver is not simulated.
    """
    wanted = os.environ.get(CUDA) or format_driver_version(DEFAULT_DRIVER)
    if wanted not in DRIVER_VERSIONS:
        raise UsageError(f"{CUDA}={wanted} is none of {', '.join(DRIVER_VERSIONS)}")
    return DRIVER_VERSIONS[wanted]


def folder_of(cuda: int) -> Path:
    """Returns where the ``libcuda.so.1`` of a CUDA version lies."""
    name = "" if cuda == DEFAULT_DRIVER else f"cuda-{format_driver_version(cuda)}"
    return SIM_LIBRARY_DIR / name


def library_of(machine: Machine, name: str) -> Path:
    """Returns the library that programs on the machine find under this name."""
    folders = machine.environment({})["LD_LIBRARY_PATH"].split(os.pathsep)
    return next(path for path in (Path(folder, name) for folder in folders) if path.exists())
