"""What `vgpuctl describe` says, of every slice and GPU of a node."""

import time
from collections.abc import Sequence
from pathlib import Path

from deviceplugin.pages.events import KeptEvent
from deviceplugin.pages.state import AgentReport
from libvgpu.slices import read_slices

from ..describe.container import describe_container
from ..describe.gpu import describe_gpu
from ..node_gpus import seen_gpus
from ..observe import gpu_rows
from ..output.facts import Container, Gpu
from ..top.frame import TopGpu
from ..top.rates import Rates

#: Between two looks, of which rates come.
_BETWEEN_S = 0.5


def described(
    run_dir: Path, report: AgentReport | None, events: Sequence[KeptEvent]
) -> list[Container | Gpu]:
    """Returns the facts of each.

    Raises:
        VgpuError: the run directory may not be read.
    """
    rates = Rates()
    rates.look(read_slices(run_dir), time.monotonic())
    time.sleep(_BETWEEN_S)
    slices = read_slices(run_dir)
    rows = rates.look(slices, time.monotonic())
    seen, _ = seen_gpus()
    known = {g.gpu.uuid: TopGpu(g.gpu.name, g.gpu.product, g.gpu.memory_bytes) for g in seen}
    found: list[Container | Gpu] = []
    for each in slices:
        mine = {r.gpu_uuid: r for r in rows if r.allocation_id == each.meta.allocation_id}
        found.append(describe_container(each, run_dir, mine, known, report, events, time.time()))
    for gpu in seen:
        here = [row for row in rows if row.gpu_uuid == gpu.gpu.uuid]
        found.append(describe_gpu(gpu, gpu_rows([gpu], slices)[0], here, report, events))
    return found
