"""What a support bundle says of the machine: versions, the kernel's lines, directories, counts.

Reads what it names and nothing else: no environment, no certificate or token, no content of a
tenant's file. Each function raises OSError or VgpuError where this user may not look.
"""

import contextlib
import os
import platform
import stat
from collections import Counter
from pathlib import Path
from typing import Any

from deviceplugin.cdi.runtime_files import read_facts
from deviceplugin.cdi.trees import node_root
from deviceplugin.inventory.nvml_calls import ask_once
from deviceplugin.pages.state import AgentReport
from deviceplugin.recovery.kubelet_checkpoint import NAME, KubeletCheckpoint, registered_devices
from libvgpu import artifacts
from libvgpu.errors import InventoryError, VgpuError
from libvgpu.version import installed_version

_KERNEL_LOG = Path("/dev/kmsg")
_MOST_LINES, _LINE_BYTES = 500, 8192
_WANTED = b"NVRM: Xid"
_TAIL_BYTES = 64 << 10


def versions(report: AgentReport | None) -> dict[str, Any]:
    """Returns versions of all that takes part; None for what cannot be told."""
    facts = read_facts(node_root("", os.environ))
    driver, cuda = _driver()
    try:
        build = artifacts.build_id(artifacts.shim_path())
    except VgpuError:
        build = None
    glibc = None
    with contextlib.suppress(ValueError, OSError):
        glibc = os.confstr("CS_GNU_LIBC_VERSION")
    return {
        "vgpuctl": installed_version(),
        "agent": report.agent.version if report else None,
        "shim_build": build,
        "agent_shim_build": report.shim_build if report else None,
        "driver": driver,
        "cuda": cuda,
        "kernel": platform.release(),
        "machine": platform.machine(),
        "glibc": glibc,
        "python": platform.python_version(),
        "container_runtime": facts.label if facts.name else None,
        "container_runtime_config": facts.source or None,
        "nvidia_runtime_handlers": list(facts.nvidia_handlers),
    }


def _driver() -> tuple[str | None, str | None]:
    import pynvml

    def versions(nvml: Any) -> tuple[str, str]:
        version = int(nvml.nvmlSystemGetCudaDriverVersion())
        cuda = f"{version // 1000}.{version % 1000 // 10}"
        return str(nvml.nvmlSystemGetDriverVersion()), cuda

    try:
        return ask_once(versions)
    except (pynvml.NVMLError, InventoryError):
        return None, None


def kernel_lines(log: Path = _KERNEL_LOG) -> list[str]:
    """Returns the kernel's lines about XIDs, the newest of them last.

    Raises:
        OSError: they may not be read.
    """
    found: list[str] = []
    descriptor = os.open(log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while True:
            try:
                line = os.read(descriptor, _LINE_BYTES)
            except BlockingIOError:
                break  # all that there is
            except BrokenPipeError:
                continue  # it was overwritten meanwhile: the next one is there
            if not line:
                break
            found += [
                each.decode("utf-8", "replace") for each in line.splitlines() if _WANTED in each
            ]
    finally:
        os.close(descriptor)
    return found[-_MOST_LINES:]


def directories(top: Path) -> list[dict[str, Any]]:
    """Returns each allocation's directory with size, mode and owner of what is in it.

    Raises:
        OSError: it may not be read.
    """
    root = top / "allocations"
    return [_listed(root / name) for name in sorted(os.listdir(root))]


def _listed(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"allocation": directory.name}
    try:
        status = directory.lstat()
        found |= {"mode": f"{stat.S_IMODE(status.st_mode):04o}", "user": status.st_uid}
        found["files"] = [
            {
                "name": entry.name,
                "bytes": entry.stat(follow_symlinks=False).st_size,
                "mode": stat.filemode(entry.stat(follow_symlinks=False).st_mode),
                "user": entry.stat(follow_symlinks=False).st_uid,
            }
            for entry in sorted(os.scandir(directory), key=lambda entry: entry.name)
        ]
    except OSError as error:
        found["problem"] = error.strerror
    return found


def kubelet_counts(kubelet_dir: Path, domain: str) -> dict[str, Any]:
    """Returns how many devices and containers the kubelet has on record, by resource.

    Args:
        domain: of our resources; containers of others are not counted.

    Raises:
        OSError: it may not be read.
        VgpuError: it is no checkpoint.
    """
    path = kubelet_dir / "device-plugins" / NAME
    try:
        devices = registered_devices(path)
    except ValueError as error:
        raise VgpuError(f"the kubelet's record cannot be read: {error}") from None
    reading = KubeletCheckpoint(kubelet_dir, domain, lambda answer: {}).read()
    if reading.problem:
        raise VgpuError(reading.problem)
    return {
        "registered_devices": {name: len(ids) for name, ids in sorted(devices.items())},
        "containers": dict(sorted(Counter(e.resource for e in reading.entries).items())),
        "units": dict(sorted(_units(reading.entries).items())),
    }


def _units(entries: Any) -> Counter[str]:
    found: Counter[str] = Counter()
    for entry in entries:
        found[entry.resource] += len(entry.units)
    return found


def tail(path: Path) -> str:
    """Returns the end of a log.

    Raises:
        OSError: it may not be read.
    """
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        return file.read().decode("utf-8", "replace")
