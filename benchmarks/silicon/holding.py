"""Slices for tenants of one GPU, and the environment in which each finds its own."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

from libvgpu.artifacts import shim_path
from libvgpu.limits import ContainerLimits, DeviceLimit, Family

from ..gpu import Gpu
from ..slices import Arbiter, create


class Hold(Enum):
    """How tenants are held."""

    BARE = "bare"  # by nothing
    CAPS = "caps"  # each by its own cap
    WINDOWS = "windows"  # by turns of the arbiter


@contextmanager
def held(
    gpu: Gpu,
    folder: Path,
    core_percents: Sequence[int],
    hold: Hold,
    context_bytes: int,
    variables: Mapping[str, str],
) -> Iterator[list[dict[str, str]]]:
    """Yields the environment of each tenant, of equal memory, until they have ended.

    Args:
        gpu: where they run.
        folder: an empty one for the slices.
        core_percents: share and weight of each.
        hold: how they are held.
        context_bytes: what a context takes, for the limits; 0: the shim measures it.
        variables: that all of them have.

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
            context_bytes=context_bytes,
            core_percent=percent,
            weight=percent,
        )
        slices.append(folder / f"slice{index}")
        create(slices[-1], ContainerLimits("bench", Family.VGPU, (limit,)))
    environments = [base | {"LD_PRELOAD": str(shim_path()), "VGPU_DIR": str(at)} for at in slices]
    if hold is Hold.CAPS:
        yield environments
        return
    with Arbiter() as arbiter:
        for directory in slices:
            arbiter.add(directory, 0)
        yield environments
