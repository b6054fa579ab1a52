"""The demo's table: per container what it asked for, what it sees, and what it got."""

from libvgpu.sizes import format_size
from vgpuctl.render import Column, Row

from .tenant import DemoContainer


def row(tenant: DemoContainer, isolated: bool) -> Row:
    """Returns the table's row of a container that has said all three phases."""
    view, memory, compute = (tenant.history[p][0] for p in ("view", "memory", "compute"))
    asked = tenant.asked
    return {
        "container": tenant.name,
        "asked": f"{asked.family.name.lower()} {asked.core_percent} % + "
        f"{format_size(asked.memory_bytes)}",
        "gpu": view["uuid"][:12],
        "cuda": format_size(view["cuda_total_bytes"]),
        "nvml": format_size(view["nvml_total_bytes"]),
        "granted": str(memory["granted_bytes"]),
        "refusal": str(memory["refusal_code"]),
        "share": f"{compute['share_percent']:.1f} % of {asked.core_percent} %",
        "notes": "; ".join(tenant.notes) or ("own root file system" if isolated else ""),
    }


COLUMNS = tuple(
    Column(title, lambda values, key=key: str(values[key]), right)  # type: ignore[misc]
    for title, key, right in (
        ("CONTAINER", "container", False),
        ("ASKED", "asked", False),
        ("GPU", "gpu", False),
        ("CUDA SEES", "cuda", True),
        ("NVML SEES", "nvml", True),
        ("GRANTED BYTES", "granted", True),
        ("REFUSAL", "refusal", True),
        ("SHARE (SIMULATED)", "share", True),
        ("HOW IT RUNS", "notes", False),
    )
)
