"""The check of the driver: its library, or where a container has none, what NVML says of it.

`look` asks; the rest is pure. NVIDIA's container runtime brings ``libcuda.so.1`` with the
capability ``compute`` only, which the node agent has no use for.
"""

import ctypes
import os

from deviceplugin.inventory.nvml_calls import ask_once
from libvgpu.errors import InventoryError

from .finding import Finding, fail, ok, warn
from .node_checks import INSTALL_DRIVER

_LIBRARY = "libcuda.so.1"
#: CUDA 11.4, the oldest on which the exercises run.
OLDEST_VERSION = 11040
_OLDEST_BRANCH = 470


def look() -> Finding:
    """Asks the driver of this process for its version."""
    return ask()[1]


def ask() -> tuple[int | None, Finding]:
    """Returns the CUDA version of the driver, None where nobody tells it, and what it means."""
    simulated = "VGPU_SIM_MACHINE" in os.environ
    version = ctypes.c_int()
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        if not needs_library(os.environ.get("NVIDIA_DRIVER_CAPABILITIES")):
            by_nvml = _version_by_nvml()
            return by_nvml, without_library(by_nvml)
        return None, judge(None, str(error), simulated)
    try:
        status = library.cuDriverGetVersion(ctypes.byref(version))
    except AttributeError as error:
        return None, judge(None, str(error), simulated)
    if status != 0:
        return None, judge(None, f"cuDriverGetVersion answers {status}", simulated)
    return version.value, judge(version.value, "", simulated)


def _version_by_nvml() -> int | None:
    import pynvml

    try:
        return ask_once(lambda nvml: int(nvml.nvmlSystemGetCudaDriverVersion()))
    except (pynvml.NVMLError, InventoryError):
        return None


def needs_library(capabilities: str | None) -> bool:
    """Returns whether the library is to be there.

    Args:
        capabilities: ``NVIDIA_DRIVER_CAPABILITIES`` of a container; None where it is not set, as on
            a host.
    """
    named = {each.strip() for each in (capabilities or "all").split(",")}
    return not named.isdisjoint({"all", "compute"})


def without_library(version: int | None) -> Finding:
    """Judges a container that has no library and needs none.

    Args:
        version: of CUDA as NVML gives it, None where NVML does not say.
    """
    why = f"{_LIBRARY} is not in this container, whose driver capabilities leave out compute"
    if version is None:
        return warn("driver", f"{why}, and NVML does not tell the driver's version", INSTALL_DRIVER)
    if version < OLDEST_VERSION:
        return _too_old(version)
    return ok("driver", f"{why}; by NVML the driver has CUDA {shown(version)}")


def judge(version: int | None, problem: str, simulated: bool) -> Finding:
    """Judges what the library said.

    Args:
        version: as cuDriverGetVersion gives it (1000 · major + 10 · minor), None without one.
        problem: why there is none.
        simulated: this process runs on a simulated machine.
    """
    if version is None:
        return fail("driver", f"the driver library cannot be used: {problem}", INSTALL_DRIVER)
    if version < OLDEST_VERSION:
        return _too_old(version)
    kind = "simulated, " if simulated else ""
    return ok("driver", f"{_LIBRARY} is there ({kind}CUDA {shown(version)})")


def _too_old(version: int) -> Finding:
    return fail(
        "driver",
        f"the driver has CUDA {shown(version)}, and the shim is made for {shown(OLDEST_VERSION)} "
        "and newer: calls that such a driver lacks fail in containers",
        f"install a driver of branch {_OLDEST_BRANCH} or newer, then restart the agent",
    )


def shown(version: int) -> str:
    """Returns a version as people write it, ``12.4`` for 12040."""
    return f"{version // 1000}.{version % 1000 // 10}"
