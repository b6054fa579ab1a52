"""What contexts and blocks take, learnt from one `vgpuctl run` for the next in its run directory.

Two runs that end at one moment may overwrite each other's word; the next one says it again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from deviceplugin.policy.limits.learnt_sizes import GpuKind, MeasuredSizes, Sizes
from deviceplugin.store.learnt_sizes_file import KeptSizes
from libvgpu.errors import RegionError
from libvgpu.ledger_view import read_ledger

from .requests import GpuCandidate


def _kind(gpu: GpuCandidate, under_mps: bool) -> GpuKind | None:
    return GpuKind(gpu.product, gpu.driver, under_mps) if gpu.driver else None


def with_sizes(
    gpus: Sequence[GpuCandidate], run_dir: Path, under_mps: bool
) -> tuple[GpuCandidate, ...]:
    """Returns GPUs with what earlier runs found out about them."""
    learnt, found = KeptSizes(run_dir).learnt, []
    for gpu in gpus:
        sizes = learnt.of(_kind(gpu, under_mps))
        context_bytes = gpu.context_bytes or sizes.context_bytes
        found.append(replace(gpu, context_bytes=context_bytes, block_bytes=sizes.block_bytes))
    return tuple(found)


def note(
    directory: Path,
    uuids: Sequence[str],
    gpus: Mapping[str, GpuCandidate],
    run_dir: Path,
    under_mps: bool,
) -> None:
    """Keeps what a run measured, of whose slice ``directory`` is and which had these GPUs in order.

    A program that damaged its own files teaches nothing.
    """
    try:
        ledger = read_ledger(directory)
    except RegionError:
        return
    KeptSizes(run_dir).note(
        (_kind(gpus[uuid], under_mps), MeasuredSizes(directory.name, uuid, Sizes(*each), each[0]))
        for uuid, *each in zip(uuids, ledger.context_bytes, ledger.block_bytes, strict=False)
    )
