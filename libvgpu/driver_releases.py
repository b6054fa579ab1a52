"""The driver releases that a simulated machine can have: plain data, for build and simulator.

A release is what its users meet: the driver API it brought, the functions its NVML lacks, and the
form of what the others answer. Another release is a row here. Which functions NVML got with which
release stands in ``sim/nvml/entries.def``; a row names only what was there earlier and is gone. The
build links a library of its own for each CUDA version and each NVML that is not the default one
(`libvgpu/_build.py`); all else is read from the machine.

Sources: NVIDIA's release notes of CUDA for the versions. For the process lists: ``nvml.h`` of CUDA
11.7 to 13.1 and of nvidia-settings 535.98 and 535.104.05, and XuehaiPan/nvitop#79, #88, #89, #94.
The ``_v3`` lists were gone in 535.98 alone. For PID namespaces: NVIDIA/nvidia-docker#1483 and the
sources of NVIDIA's open kernel modules, which do not look at them in 525.53. Which release was the
first to leave out what the caller cannot see is not known exactly: it was one after that.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

#: As users write it -> as cuDriverGetVersion gives it. What these drivers lack is left out of the
#: library that their machines use.
CUDA_VERSIONS: dict[str, int] = {
    "11.4": 11040,
    "11.8": 11080,
    "12.0": 12000,
    "12.2": 12020,
    "12.4": 12040,
    "12.8": 12080,
    "13.0": 13000,
    "13.1": 13010,
}
#: What a machine has unless another one is asked for.
DEFAULT_CUDA = 13000

_ENTRIES = Path(__file__).resolve().parent / "sim" / "nvml" / "entries.def"
_LISTS = ("Compute", "Graphics", "MPSCompute")
_THIRD_LISTS = frozenset(f"nvmlDeviceGet{name}RunningProcesses_v3" for name in _LISTS)

#: A version of the driver, for comparison.
Version = tuple[int, ...]


def _version(text: str) -> Version:
    return tuple(map(int, text.split(".")))


@functools.cache
def nvml_since() -> Mapping[str, Version]:
    """Returns the driver that brought each function of the simulated NVML."""
    rows = re.findall(r"^\w+\((nvml\w+), ([\d.]+)\)$", _ENTRIES.read_text(), re.M)
    return {symbol: _version(since) for symbol, since in rows}


@dataclass(frozen=True, slots=True)
class DriverRelease:
    """One release of the driver.

    Attributes:
        name: as users write it behind ``driver=``.
        version: as NVML gives it.
        cuda_version: of the driver API that it brought, 13000 for CUDA 13.0.
        dropped: functions of NVML that an earlier release had.
        process_entry_bytes: how long an entry of the process lists ``_v3`` is.
        lists_unseen: whether the process lists also name processes that the caller cannot see from
            its PID namespace, by pids that mean nothing there.
    """

    name: str
    version: str
    cuda_version: int
    dropped: frozenset[str] = frozenset()
    process_entry_bytes: int = 24
    lists_unseen: bool = False

    @property
    def lacks(self) -> frozenset[str]:
        """Functions of the simulated NVML that it does not have: dropped, or of a later driver.

        The newest release has all: tests of the shim's hooks need what came later, too.
        """
        if self is _ROWS[-1]:
            return frozenset()
        own = _version(self.version)
        return self.dropped | {symbol for symbol, since in nvml_since().items() if since > own}


_ROWS = (
    DriverRelease("470", "470.256.02", 11040, lists_unseen=True),
    DriverRelease("520", "520.61.05", 11080, lists_unseen=True),
    DriverRelease("525", "525.60.13", 12000, lists_unseen=True),
    DriverRelease("535.54", "535.54.03", 12020, process_entry_bytes=32),
    DriverRelease("535.98", "535.98", 12020, dropped=_THIRD_LISTS),
    DriverRelease("535.104", "535.104.05", 12020),
    DriverRelease("535.129", "535.129.03", 12020),
    DriverRelease("550", "550.54.14", 12040),
    DriverRelease("570", "570.86.10", 12080),
    DriverRelease("580", "580.65.06", 13000),
    DriverRelease("590", "590.44.01", 13010),
)
RELEASES: dict[str, DriverRelease] = {release.name: release for release in _ROWS}


def release_of_cuda(cuda_version: int) -> DriverRelease:
    """Returns the first release that brought this version of the driver API, or a newer one."""
    return next((each for each in _ROWS if each.cuda_version >= cuda_version), _ROWS[-1])


def release_of_version(version: str) -> DriverRelease:
    """Returns the release that NVML calls ``version``; KeyError where no row is of it."""
    return {each.version: each for each in _ROWS}[version]
