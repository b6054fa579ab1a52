"""Slices for tenants of one GPU, and the environment in which each finds its own."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

from libvgpu.artifacts import shim_path
from libvgpu.limits import ComputeMode, ContainerLimits, DeviceLimit, Family

from .. import own_time
from ..gpu import Gpu
from ..slices import Arbiter, create


class Hold(Enum):
    """How tenants are held."""

    BARE = "bare"  # by nothing
    CAPS = "caps"  # each by its own cap
    WINDOWS = "windows"  # by turns of the arbiter


def in_slice(directory: Path) -> dict[str, str]:
    """Returns the variables that hold a program in a slice."""
    return own_time.passed_on(shim_path()) | {"VGPU_DIR": str(directory)}


@contextmanager
def held(
    gpu: Gpu,
    folder: Path,
    core_percents: Sequence[int],
    hold: Hold,
    variables: Mapping[str, str],
    mode: ComputeMode = ComputeMode.STRICT,
) -> Iterator[list[dict[str, str]]]:
    """Yields the environment of each tenant, of equal memory, until they have ended.

    Args:
        gpu: where they run.
        folder: an empty one for the slices.
        core_percents: share and weight of each.
        hold: how they are held.
        variables: that all of them have.
        mode: how their shares hold.

    Raises:
        VgpuError: a slice cannot be made, or no arbiter begun.
    """
    base = gpu.environment({"PATH": os.defpath}) | dict(variables)
    if hold is Hold.BARE:
        yield [dict(base) for _ in core_percents]
        return
    slices = []
    for index, percent in enumerate(core_percents):
        limit = DeviceLimit(
            gpu.uuid,
            gpu.memory_bytes // len(core_percents),
            core_percent=percent,
            weight=percent,
            compute_mode=mode,
        )
        slices.append(folder / f"slice{index}")
        create(slices[-1], ContainerLimits("bench", Family.VGPU, (limit,)))
    environments = [base | in_slice(directory) for directory in slices]
    if hold is Hold.CAPS:
        yield environments
        return
    with Arbiter() as arbiter:
        for directory in slices:
            arbiter.add(directory, 0)
        yield environments
