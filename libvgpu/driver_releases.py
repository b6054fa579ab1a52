"""The driver releases that a simulated machine can have: plain data, for build and simulator.

A release is what its users meet: the driver API it brought, the functions its NVML lacks, and the
form of what the others answer. Another release is a row here. Where a row names functions that NVML
lacks, the build links a library of its own for it (`libvgpu/_build.py`); all else is read from the
machine.

Sources: NVIDIA's release notes of CUDA for the versions; for the process lists the headers of NVML,
the sources of nvitop (which tells the forms apart) and its issues 79, 88 and 89; for PID namespaces
NVIDIA/nvidia-docker#1483 and the sources of NVIDIA's open kernel modules. Which release was the
first to leave out what the caller cannot see is not known exactly: it was one after 470.
"""

from dataclasses import dataclass

#: As users write it -> as cuDriverGetVersion gives it. What these drivers lack is left out of the
#: library that their machines use.
CUDA_VERSIONS: dict[str, int] = {
    "11.4": 11040,
    "11.8": 11080,
    "12.2": 12020,
    "12.4": 12040,
    "12.8": 12080,
    "13.0": 13000,
}
#: What a machine has unless another one is asked for.
NEWEST_CUDA = 13000

_LISTS = ("Compute", "Graphics", "MPSCompute")
_THIRD_LISTS = frozenset(f"nvmlDeviceGet{name}RunningProcesses_v3" for name in _LISTS)
_DETAIL_LIST = frozenset({"nvmlDeviceGetRunningProcessDetailList"})
_UTILISATION_INFO = frozenset({"nvmlDeviceGetProcessesUtilizationInfo"})


@dataclass(frozen=True, slots=True)
class DriverRelease:
    """One release of the driver.

    Attributes:
        name: as users write it behind ``driver=``.
        version: as NVML gives it.
        cuda_version: of the driver API that it brought, 13000 for CUDA 13.0.
        lacks: functions of NVML that it does not have, of those that the simulated NVML has.
        process_entry_bytes: how long an entry of the process lists ``_v3`` is.
        lists_unseen: whether the process lists also name processes that the caller cannot see from
            its PID namespace, by pids that mean nothing there.
    """

    name: str
    version: str
    cuda_version: int
    lacks: frozenset[str] = frozenset()
    process_entry_bytes: int = 24
    lists_unseen: bool = False


_ROWS = (
    DriverRelease(
        "470",
        "470.256.02",
        11040,
        lacks=_THIRD_LISTS | _DETAIL_LIST | _UTILISATION_INFO,
        lists_unseen=True,
    ),
    DriverRelease(
        "520", "520.61.05", 11080, lacks=_DETAIL_LIST | _UTILISATION_INFO, lists_unseen=True
    ),
    DriverRelease(
        "535.54",
        "535.54.03",
        12020,
        lacks=_DETAIL_LIST | _UTILISATION_INFO,
        process_entry_bytes=32,
    ),
    DriverRelease("535.104", "535.104.05", 12020, lacks=_THIRD_LISTS | _UTILISATION_INFO),
    DriverRelease("535.129", "535.129.03", 12020, lacks=_THIRD_LISTS | _UTILISATION_INFO),
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
