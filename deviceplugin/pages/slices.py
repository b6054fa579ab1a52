"""What the page ``/v1/slices`` says: the GPUs of a node and its slices as they are found.

`NodeSlices` is the page's form, for the agent that writes it and for `kubectl vgpu` that reads it.
Under one `VERSION` keys may be added, with a value for pages that lack them; none goes or changes
(docs/schemas/agent-slices.v1.json, which `make fresh` holds to that).
Slices of `vgpuctl run` come without their command lines, in which there may be secrets.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

import msgspec

from deviceplugin.model.gpus import Gpu
from libvgpu.decoding import json_decoder
from libvgpu.errors import VgpuError
from libvgpu.slices import Slice

VERSION = 1
Source = Literal["driver", "simulated"]


class NodeGpu(msgspec.Struct, frozen=True):
    """One GPU or MIG device.

    Attributes:
        index: of the GPU.
        mig_number: of a MIG device: its number among those of GPU ``index``.
        is_cut: it is in MIG mode, so that nothing can be had of it but its MIG devices.
        health: why nothing of it is given; empty where it is well.
        drains: what it waits for before it is shared as the config says; empty: for nothing.
    """

    index: int
    uuid: str
    product: str
    memory_bytes: int
    mig_number: int | None
    is_cut: bool
    source: Source
    driver: str = ""
    health: str = ""
    drains: str = ""


class NodeSlices(msgspec.Struct, frozen=True):
    """The page.

    Attributes:
        node: name of the Node.
        at: when the files were read, seconds since 1970.
        clock_s: the same by a clock of the node that is never set: for rates between two pages.
        run_dir: on the node.
    """

    node: str
    at: float
    clock_s: float
    gpus: tuple[NodeGpu, ...]
    slices: tuple[Slice, ...]
    run_dir: str = ""
    version: int = VERSION


class _Versioned(msgspec.Struct):
    version: int


_VERSIONED, _SLICES = json_decoder(_Versioned), json_decoder(NodeSlices)


def node_gpus(
    gpus: Iterable[Gpu],
    source: Source,
    health: Mapping[str, str],
    drains: Mapping[str, str],
) -> tuple[NodeGpu, ...]:
    """Returns GPUs as the page has them.

    Args:
        gpus: each MIG device behind its GPU.
        health: why nothing of it is given, by UUID.
        drains: what it waits for, by UUID.
    """
    return tuple(
        NodeGpu(
            gpu.index,
            gpu.uuid,
            gpu.name,
            gpu.memory_bytes,
            gpu.mig.number if gpu.mig else None,
            gpu.is_mig_enabled,
            source,
            gpu.driver,
            health.get(gpu.uuid, ""),
            drains.get(gpu.uuid, ""),
        )
        for gpu in gpus
    )


def without_commands(slices: Iterable[Slice]) -> tuple[Slice, ...]:
    """Returns slices without the command lines of runs."""
    return tuple(replace(each, meta=replace(each.meta, command=())) for each in slices)


def read_page(content: bytes) -> NodeSlices:
    """Returns what a page says.

    Raises:
        VgpuError: it is of a version that is not known here, or no such page.
    """
    try:
        version = _VERSIONED.decode(content).version
        if version == VERSION:
            return _SLICES.decode(content)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise VgpuError(f"its answer is not a page of slices: {error}") from None
    raise VgpuError(
        f"its page of slices is of version {version}, and known here is version {VERSION}",
        hint="use the kubectl-vgpu of the agent's version",
    )
