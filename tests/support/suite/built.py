"""Runs the tests on libraries that were built elsewhere (a pytest plugin).

``VGPU_BUILT`` names the folder ``libvgpu`` of an unpacked wheel; its shim and, where it has them,
its simulated libraries then stand in for the checkout's. ``make wheel`` uses another compiler and
links against another libc's symbols, so that what holds of one build is not yet shown of the
other::

    unzip -d build/unpacked dist/*.whl
    VGPU_BUILT=build/unpacked/libvgpu python -m pytest tests/integration/libvgpu/memory
"""

import os
from pathlib import Path

import libvgpu.sim.machine
from libvgpu import artifacts

BUILT = "VGPU_BUILT"


def pytest_configure() -> None:
    """Comes before any test module is imported, and so before anybody has taken a path."""
    if BUILT not in os.environ:
        return
    folder = Path(os.environ[BUILT])
    artifacts.SHIM_PATH = (folder / "libvgpu.so").resolve(strict=True)
    if (folder / "sim" / "lib").exists():
        artifacts.SIM_LIBRARY_DIR = (folder / "sim" / "lib").resolve()
        vars(libvgpu.sim.machine)["SIM_LIBRARY_DIR"] = artifacts.SIM_LIBRARY_DIR


def pytest_report_header() -> str:
    """Says which shim the results are of."""
    return f"shim: {artifacts.SHIM_PATH}"
