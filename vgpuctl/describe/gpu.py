"""The facts of one GPU or MIG device, as a mapping."""

from collections.abc import Sequence
from typing import cast

from deviceplugin.pages.events import KeptEvent
from deviceplugin.pages.state import AgentReport

from ..observe import SeenGpu
from ..output.facts import Gpu, Health, WholeDevice
from ..output.rows import State, StatusRow
from ..render import OUTPUT_VERSION
from ..top.rates import TopRow
from .container import event_fact

_EVENTS = 5


def describe_gpu(
    seen: SeenGpu,
    status: StatusRow,
    rows: Sequence[TopRow],
    report: AgentReport | None,
    events: Sequence[KeptEvent],
) -> Gpu:
    """Returns the facts.

    Args:
        status: the GPU's row of `vgpuctl status`.
        rows: of the slices on it.
        events: all that are kept.
    """
    gpu = seen.gpu
    mine = [each for each in events if not each.subject and gpu.uuid in each.text][-_EVENTS:]
    return {
        "version": OUTPUT_VERSION,
        "kind": "gpu",
        "gpu_uuid": gpu.uuid,
        "gpu": gpu.name if gpu.index >= 0 else None,
        "product": gpu.product,
        "source": seen.source,
        "driver": gpu.driver,
        "family": status["family"],
        "health": _health(report, gpu.uuid),
        "memory_total_bytes": status["memory_total_bytes"],
        "memory_allocated_bytes": status["memory_allocated_bytes"],
        "memory_used_bytes": status["memory_used_bytes"],
        "memory_unaccounted_bytes": status["memory_unaccounted_bytes"],
        "memory_free_bytes": status["memory_free_bytes"],
        "core_allocated_percent": status["core_allocated_percent"],
        "core_free_percent": status["core_free_percent"],
        "share_percent": round(sum(row.share_percent or 0.0 for row in rows), 1),
        "slices": [
            {
                "allocation": row.allocation_id,
                "who": row.who,
                "state": cast(State, row.state),
                "memory_used_bytes": row.memory_used_bytes,
                "memory_limit_bytes": row.memory_limit_bytes,
                "core_percent": row.core_percent,
                "share_percent": None if row.share_percent is None else round(row.share_percent, 1),
                "held_percent": round(min(100.0, row.held_percent), 1),
            }
            for row in rows
        ],
        "devices": _devices(report, gpu.uuid),
        "events": list(map(event_fact, mine)),
    }


def _health(report: AgentReport | None, uuid: str) -> Health:
    """Returns what the agent says is the matter with a GPU; nulls without an agent."""
    if report is None:
        return {"unhealthy": None, "draining": None, "withheld": None}
    left_out = report.unhealthy_gpus.get(uuid) or report.left_out_gpus.get(uuid, "")
    return {
        "unhealthy": left_out,
        "draining": report.draining_gpus.get(uuid, ""),
        "withheld": report.withheld_gpus.get(uuid, ""),
    }


def _devices(report: AgentReport | None, uuid: str) -> list[WholeDevice]:
    """Returns who has the GPU whole, or a replica of it."""
    return [
        {"resource": each.resource, "id": each.id, "owner": each.owner}
        for each in (report.devices if report else [])
        if each.id.partition("::")[0] == uuid
    ]
