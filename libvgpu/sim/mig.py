"""MIG: what models of GPU can be cut into, and layouts of instances as users write them.

An instance has its part of the GPU's memory, SMs, cache and bandwidth. It is a device of its own in
the machine file, behind the GPUs, so that its books and its timeline are its own. Where an instance
lies on its GPU decides `sim/core/mig_place.c`, as the driver does it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .._native import ffi, lib
from ..errors import UsageError

#: A GPU in MIG mode without an instance.
NONE = "none"
#: of memory, that instances are placed on
SLICES: int = lib.SIM_MIG_SLICES
_BETWEEN = re.compile(r"\+(?=\d)")  # not the one of 1g.5gb+me
_COUNTED = re.compile(r"(?P<name>[^*]*)(?:\*(?P<count>[1-9]\d{0,3}))?")
_NATIVE_FIELDS = (
    "memory_mib", "sm_count", "number", "id", "slices", "size", "instances", "copy_engines",
    "decoders", "encoders", "jpeg_engines", "optical_flow_engines",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MigProfile:
    """A kind of GPU instance of one model.

    Attributes:
        name: as NVIDIA writes it, for example ``1g.5gb+me``.
        number: NVML's ``NVML_GPU_INSTANCE_PROFILE_*``.
        id: as ``nvidia-smi mig -lgip`` has it.
        slices: of compute, sevenths of the GPU.
        size: slices of memory, eighths of the GPU.
        starts: the slices of memory at which it may begin.
        instances: how many a GPU can have.
    """

    name: str
    number: int
    id: int
    slices: int
    sm_count: int
    memory_mib: int
    copy_engines: int
    decoders: int
    encoders: int
    jpeg_engines: int
    optical_flow_engines: int
    instances: int
    size: int
    starts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """An instance on its GPU: its profile's name, and the slice of memory where it begins."""

    profile: str
    start: int


def format_layout(layout: Sequence[Placed]) -> str:
    """Returns a layout as users write it, for example ``1g.5gb*2+3g.20gb``."""
    names = [placed.profile for placed in layout]
    counts = {name: names.count(name) for name in names}
    return "+".join(f"{n}*{count}" if count > 1 else n for n, count in counts.items()) or NONE


def fill_native(target: Any, profiles: Sequence[MigProfile]) -> None:
    """Fills an array of ``struct sim_mig_profile``."""
    for native, profile in zip(target, profiles, strict=False):
        native.name = profile.name.encode()
        native.starts = sum(1 << start for start in profile.starts)
        for field in _NATIVE_FIELDS:
            setattr(native, field, getattr(profile, field))


def read_native(source: Any, count: int) -> tuple[MigProfile, ...]:
    """Returns what such an array says."""
    return tuple(
        MigProfile(
            name=ffi.string(native.name).decode(),
            starts=tuple(start for start in range(SLICES) if native.starts >> start & 1),
            **{field: int(getattr(native, field)) for field in _NATIVE_FIELDS},
        )
        for native in source[0:count]
    )


def parse_layout(text: str, profiles: Sequence[MigProfile], gpu: str) -> tuple[Placed, ...]:
    """Returns the instances that ``text`` describes, where the driver would place them.

    They are made in the order in which they are written, and from the biggest to the smallest where
    the driver finds no room in that order, as NVIDIA's guide advises.

    Args:
        text: ``PROFILE[*N]``, several with ``+`` between them, for example
            ``3g.20gb+2g.10gb+1g.5gb*2``, or `NONE`.
        profiles: of that model of GPU.
        gpu: its name, for messages.

    Raises:
        UsageError: the GPU has no such instances, or not together.
    """
    if not profiles:
        raise UsageError(f"a GPU of profile {gpu!r} has no MIG instances")
    if text == NONE:
        return ()
    names = [p.name for p in profiles]
    wanted: list[int] = []
    for part in _BETWEEN.split(text):
        match = _COUNTED.fullmatch(part)
        if match is None:
            raise UsageError(
                f"{part!r} does not say how many MIG instances: give KIND*N with N from 1 to "
                f"{lib.SIM_MIG_SLOTS}, for example {names[0]}*2"
            )
        if match["name"] not in names:
            raise UsageError(
                f"{match['name']!r} is not a kind of MIG instance of a GPU of profile {gpu!r}: it "
                f"has {', '.join(names)}, and {NONE} for MIG mode without an instance"
            )
        wanted += [names.index(match["name"])] * min(int(match["count"] or 1), 100)
    biggest_first = sorted(wanted, key=lambda index: -profiles[index].size)
    placed = _place(wanted, profiles) or _place(biggest_first, profiles)
    if placed is None:
        raise UsageError(_refusal(text, wanted, profiles, gpu))
    return placed


def _place(wanted: Sequence[int], profiles: Sequence[MigProfile]) -> tuple[Placed, ...] | None:
    native = ffi.new("struct sim_mig_profile[]", len(profiles))
    fill_native(native, profiles)
    occupied = 0
    placed: list[Placed] = []
    for number, index in enumerate(wanted):
        existing = list(wanted[:number]).count(index)
        start = lib.sim_mig_place(native, len(profiles), occupied, existing, index)
        if start < 0:
            return None
        occupied |= ((1 << profiles[index].size) - 1) << start
        placed.append(Placed(profiles[index].name, start))
    return tuple(placed)


def _refusal(text: str, wanted: Sequence[int], profiles: Sequence[MigProfile], gpu: str) -> str:
    for index in wanted:
        profile, count = profiles[index], list(wanted).count(index)
        if count > profile.instances:
            return (
                f"a GPU of profile {gpu!r} cannot be cut into {count} instances of "
                f"{profile.name}: at most {profile.instances}"
            )
    slices = sum(profiles[index].size for index in wanted)
    why = (
        f"they take {slices} slices of memory, and it has {SLICES}"
        if slices > SLICES
        else "the places where they may begin ("
        + ", ".join(
            f"{profiles[index].name} at {' or '.join(map(str, profiles[index].starts))}"
            for index in dict.fromkeys(wanted)
        )
        + ") leave no room for all"
    )
    return f"a GPU of profile {gpu!r} cannot be cut into {text}: {why}"
