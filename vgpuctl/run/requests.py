"""What `vgpuctl run` was asked for, from the words typed to the limits of one slice.

Pure: words in, `DeviceLimit` out. Two steps, since the first needs no GPU: `parse_requests`
reads the words, `limits_for` fits them to the GPUs that are there. ``--memory`` and ``--core``
are given once (and then hold for each GPU) or once per ``--gpu`` in the same order.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from deviceplugin.model.gpus import SickGpu
from libvgpu.counting import counted
from libvgpu.errors import AllocationRefused, UsageError
from libvgpu.limits import WHOLE_CORE_PERCENT, ComputeMode, DeviceLimit, on_left_over
from libvgpu.sizes import format_size, parse_percent, parse_size

_UUID = re.compile(r"(GPU|MIG)-[0-9a-zA-Z/-]+")
_INDEX = re.compile(r"[0-9]{1,4}(:[0-9]{1,2})?")
DEFAULT_GPU = "0"


@dataclass(frozen=True, slots=True)
class GpuCandidate:
    """One GPU, or MIG device, that a slice can be cut from.

    Attributes:
        index: as NVML counts.
        uuid: NVML's name of it; empty while a simulated machine is not started yet.
        product: its marketing name.
        memory_bytes: its whole memory.
        context_bytes: what one context costs; 0 where that is not known yet.
        driver: its version; empty of a simulated GPU, whose contexts are known.
        block_bytes: what it gives memory in; 0 where that is not known yet.
        mig_number: of a MIG device: its number among those of GPU ``index``.
        is_cut: it is in MIG mode, so that nothing can be had of it but its MIG devices.
    """

    index: int
    uuid: str
    product: str
    memory_bytes: int
    context_bytes: int = 0
    driver: str = ""
    block_bytes: int = 0
    mig_number: int | None = None
    is_cut: bool = False

    @property
    def name(self) -> str:
        """Its index, or GPU and MIG device as NVIDIA's container tools write them, ``0:1``."""
        return str(self.index) if self.mig_number is None else f"{self.index}:{self.mig_number}"


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """The slice asked of one GPU.

    Attributes:
        selector: index, index of a GPU and number of its MIG device (``0:1``), or UUID.
        memory_bytes: the limit, or None for all of the GPU's.
        core_percent: 1..100, or None for what other slices leave over.
    """

    selector: str
    memory_bytes: int | None = None
    core_percent: int | None = WHOLE_CORE_PERCENT


def parse_core(text: str) -> int:
    """Returns the percentage that ``text`` stands for, 1 to 100.

    Raises:
        UsageError: naming the value and what is allowed.
    """
    percent = parse_percent(text)
    if percent is None or not 1 <= (percent.whole or 0) <= WHOLE_CORE_PERCENT:
        raise UsageError(
            f"core {text!r} is not a share of one GPU: give a whole percentage from 1 to 100, "
            "for example 50 or 50%"
        )
    return int(percent.value)


def parse_requests(
    gpus: Sequence[str], memories: Sequence[str], cores: Sequence[str]
) -> tuple[GpuRequest, ...]:
    """Returns one request per GPU from the values of ``--gpu``, ``--memory`` and ``--core``.

    Memory without core reserves no compute, as in a pod; neither of them asks for the whole GPU.

    Raises:
        UsageError: a value is wrong, a GPU is named twice, or the counts do not fit together.
    """
    selectors = [gpu.strip() for gpu in gpus] or [DEFAULT_GPU]
    for at, selector in enumerate(selectors):
        if not _INDEX.fullmatch(selector) and not _UUID.fullmatch(selector):
            raise UsageError(
                f"gpu {selector!r} is not a GPU: give its index, for example 0, or 0:1 for a MIG "
                "device of it, or its UUID"
            )
        if selector in selectors[:at]:
            raise UsageError(f"gpu {selector!r} is named twice: name each GPU once")
    for option, values in (("--memory", memories), ("--core", cores)):
        if len(values) not in (0, 1, len(selectors)):
            raise UsageError(
                f"{option} is given {len(values)} times for {counted(len(selectors), 'GPU')}: "
                f"give it once, or once per --gpu in the same order"
            )
    sizes = [parse_size(text, "memory") for text in memories]
    percents: list[int | None] = [parse_core(text) for text in cores]
    if not percents:
        percents = [None if sizes else WHOLE_CORE_PERCENT]
    return tuple(
        GpuRequest(
            selector,
            None if not sizes else sizes[at % len(sizes)],
            percents[at % len(percents)],
        )
        for at, selector in enumerate(selectors)
    )


def choose_gpu(selector: str, gpus: Sequence[GpuCandidate]) -> GpuCandidate:
    """Returns the GPU that a selector names.

    Raises:
        AllocationRefused: there is none, or it is in MIG mode; the message says which there are.
    """
    there = ", ".join(f"{g.name} ({g.uuid or g.product})" for g in gpus) or "none"
    index, colon, number = selector.partition(":")
    wanted = f"{int(index)}{colon}{int(number) if colon else ''}" if index.isdecimal() else None
    for gpu in gpus:
        if gpu.uuid != selector and gpu.name != wanted:
            continue
        if gpu.is_cut:
            raise AllocationRefused(
                f"gpu {selector!r} is in MIG mode, so it cannot be used whole: name a MIG device "
                f"of it; there are: {there}"
            )
        return gpu
    raise AllocationRefused(f"gpu {selector!r} is not on this machine; there are: {there}")


def require_working(
    requests: Sequence[GpuRequest], gpus: Sequence[GpuCandidate], sick: Sequence[SickGpu]
) -> None:
    """Says of a GPU that is asked for and does not work why it does not.

    Raises:
        AllocationRefused: there is one.
    """
    for request in requests:
        index = request.selector.partition(":")[0]
        wanted = str(int(index)) if index.isdecimal() else request.selector
        if any(wanted in (str(gpu.index), gpu.uuid) for gpu in gpus):
            continue
        for each in sick:
            if wanted in (str(each.index), each.uuid):
                raise AllocationRefused(
                    f"gpu {request.selector!r} is GPU {each}, which does not work now: "
                    f"{each.reason}",
                    hint="choose another, which vgpuctl status shows",
                )


def limits_for(
    requests: Sequence[GpuRequest], gpus: Sequence[GpuCandidate], compute: ComputeMode
) -> tuple[DeviceLimit, ...]:
    """Returns the limits of a slice in the order asked.

    Args:
        compute: how a share is held; off: there is none to hold, whatever was asked.

    Raises:
        AllocationRefused: a GPU is not there, is named twice by different names, or is smaller
            than the memory asked of it.
    """
    limits: list[DeviceLimit] = []
    for request in requests:
        gpu = choose_gpu(request.selector, gpus)
        if gpu.uuid and any(limit.uuid == gpu.uuid for limit in limits):
            raise AllocationRefused(
                f"gpu {request.selector!r} is GPU {gpu.name}, which is named already: "
                "name each GPU once"
            )
        memory_bytes = gpu.memory_bytes if request.memory_bytes is None else request.memory_bytes
        if not memory_bytes and not gpu.memory_bytes:
            raise AllocationRefused(
                f"NVML does not tell how much memory GPU {gpu.name} has, so a slice cannot have "
                "all of it",
                hint="say how much, for example --memory 8GiB",
            )
        if gpu.memory_bytes and memory_bytes > gpu.memory_bytes:
            raise AllocationRefused(
                f"memory {format_size(memory_bytes)} ({memory_bytes} bytes) is more than GPU "
                f"{gpu.name} ({gpu.product}) has: at most {format_size(gpu.memory_bytes)} "
                f"({gpu.memory_bytes} bytes)"
            )
        percent = request.core_percent or WHOLE_CORE_PERCENT
        limit = DeviceLimit(
            uuid=gpu.uuid,
            memory_limit_bytes=memory_bytes,
            physical_bytes=memory_bytes,
            context_bytes=gpu.context_bytes,
            block_bytes=gpu.block_bytes,
            core_percent=percent,
            compute_mode=compute,
            weight=percent,
        )
        has_rest = request.core_percent is None and compute is not ComputeMode.OFF
        limits.append(on_left_over(limit) if has_rest else limit)
    return tuple(limits)
