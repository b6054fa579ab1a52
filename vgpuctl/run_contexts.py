"""What contexts take, learnt from one `vgpuctl run` for the next in its run directory.

Two runs that end at one moment may overwrite each other's word; the next one says it again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from deviceplugin.policy.context_costs import ContextKind, MeasuredContext
from deviceplugin.store.context_costs_file import KeptContextCosts
from libvgpu.errors import RegionError
from libvgpu.ledger_view import read_ledger

from .requests import GpuCandidate


def _kind(gpu: GpuCandidate, under_mps: bool) -> ContextKind | None:
    return ContextKind(gpu.product, gpu.driver, under_mps) if gpu.driver else None


def with_costs(
    gpus: Sequence[GpuCandidate], run_dir: Path, under_mps: bool
) -> tuple[GpuCandidate, ...]:
    """Returns GPUs with what earlier runs found that a context takes there."""
    costs = KeptContextCosts(run_dir).costs
    return tuple(
        replace(gpu, context_bytes=gpu.context_bytes or costs.of(_kind(gpu, under_mps)))
        for gpu in gpus
    )


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
        measured = read_ledger(directory).context_bytes
    except RegionError:
        return
    KeptContextCosts(run_dir).note(
        (_kind(gpus[uuid], under_mps), MeasuredContext(directory.name, uuid, size, size))
        for uuid, size in zip(uuids, measured, strict=False)
    )
