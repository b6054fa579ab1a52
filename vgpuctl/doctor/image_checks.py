"""Checks what runs in containers with a slice: whether the shim is in it, and its CUDA. Pure.

What the loader has mapped tells. Until glibc 2.33 the C library's file has its version in its name
(``libc-2.31.so``); since then it is ``libc.so.6``, which any build of the shim can be loaded next
to that was made for 2.34 or before.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePosixPath

from . import driver
from .finding import Finding, ok, warn
from .node_checks import AS_ROOT
from .slice_processes import SliceProcess

_IMAGES, _CUDA = "images", "cuda"
_OLD_GLIBC = re.compile(r"libc-2\.(\d+)\.so")
#: ``libcudart.so.12.4.127``, in wheels ``libcudart-9335f6a2.so.12.1.105`` or ``libcudart.so.12``.
_RUNTIME = re.compile(r"libcudart(?:-[0-9a-f]+)?\.so\.(\d+)(?:\.\d+)*")
_NEEDED = re.compile(rb"\0GLIBC_2\.(\d+)(?=\0)")
_OTHER_IMAGE = "build the image on one with glibc (Debian, Ubuntu, UBI) instead"


def needed_glibc(shim: bytes) -> int:
    """Returns n of the oldest glibc 2.n that a build of the shim can be loaded next to.

    Args:
        shim: the content of its file.
    """
    return max((int(found) for found in _NEEDED.findall(shim)), default=0)


def images(processes: Sequence[SliceProcess], needed: int) -> list[Finding]:
    """Tells of containers in which the shim is not in force, and why.

    Args:
        needed: of glibc, see `needed_glibc`.
    """
    seen = [each for each in processes if each.files is not None]
    found = _grouped(
        seen,
        lambda each: _without_shim(each.files or (), needed),
        lambda who, told: warn(
            _IMAGES, f"{who} without libvgpu.so, so its limits do not hold: {told[0]}", told[1]
        ),
    )
    if len(seen) < len(processes):
        hidden = len(processes) - len(seen)
        found.append(
            warn(_IMAGES, f"{hidden} processes of slices may not be seen by this user", AS_ROOT)
        )
    if found or not seen:
        return found
    return [ok(_IMAGES, f"{len(seen)} processes of pods with slices; none is without the shim")]


def cuda(processes: Sequence[SliceProcess], version: int | None) -> list[Finding]:
    """Tells of programs whose CUDA is of a later major version than the driver's.

    Within a major version NVIDIA's minor version compatibility lets them run.

    Args:
        version: of the driver's CUDA as cuDriverGetVersion gives it; None: not known.
    """
    if version is None:
        return []

    def newer(each: SliceProcess) -> tuple[str, str] | None:
        paths = [PurePosixPath(path) for path in each.files or ()]
        if any("compat" in path.parts and path.name.startswith("libcuda.so") for path in paths):
            return None  # NVIDIA's package for just this
        for path in paths:
            match = _RUNTIME.fullmatch(path.name)
            if match and int(match[1]) > version // 1000:
                return match[1], path.name
        return None

    return _grouped(
        processes,
        newer,
        lambda who, told: warn(
            _CUDA,
            f"{who} with CUDA {told[0]} ({told[1]}), and the driver has CUDA "
            f"{driver.shown(version)}: its calls fail with 'CUDA driver version is insufficient'",
            f"install a driver with CUDA {told[0]}.0 or newer, or use an image for CUDA "
            f"{version // 1000}",
        ),
    )


def _without_shim(files: Sequence[str], needed: int) -> tuple[str, str] | None:
    """Returns why the shim is not there and what to do, None where it is, or where nobody minds."""
    names = [PurePosixPath(path).name for path in files]
    if not names or "libvgpu.so" in names:
        return None
    musl = next((n for n in names if n.startswith(("ld-musl-", "libc.musl-"))), None)
    if musl:
        return (
            f"its C library is musl ({musl}), whose loader reads no /etc/ld.so.preload",
            _OTHER_IMAGE,
        )
    old = next((match for name in names if (match := _OLD_GLIBC.fullmatch(name))), None)
    if old and int(old[1]) < needed:
        return (
            f"its glibc is 2.{old[1]}, and this build of libvgpu.so needs 2.{needed}",
            f"use an image with glibc 2.{needed} or newer, or a vgpu of make wheel (glibc 2.17)",
        )
    if old or "libc.so.6" in names:
        return (
            "its loader did not preload it",
            "see whether the container's /etc/ld.so.preload names libvgpu.so, and what ld.so says",
        )
    # Tools without a C library are in many images; only on a GPU do they matter.
    if any(path.startswith("/dev/nvidia") for path in files) or any(
        name.startswith("libcuda.so") for name in names
    ):
        return "it is statically linked", "link the program dynamically, to glibc"
    return None


def _grouped(
    processes: Iterable[SliceProcess],
    tell: Callable[[SliceProcess], tuple[str, str] | None],
    finding: Callable[[str, tuple[str, str]], Finding],
) -> list[Finding]:
    """Returns one finding for each container and reason."""
    groups: dict[tuple[str, tuple[str, str]], list[SliceProcess]] = {}
    for each in processes:
        told = tell(each)
        if told is not None:
            groups.setdefault((each.owner, told), []).append(each)
    found = []
    for (owner, told), members in groups.items():
        first = members[0]
        more = f" and {len(members) - 1} more" if len(members) > 1 else ""
        verb = "run" if more else "runs"
        who = f"{owner}: process {first.pid} ({first.command}){more} {verb}"
        found.append(finding(who, told))
    return found
