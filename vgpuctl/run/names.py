"""The name that its owner may give a `vgpuctl run`: one live run of a run directory has it.

Asking and making are one step of `core_sum.admitting`, as with shares and memory.
"""

import re
from pathlib import Path

from libvgpu import allocation_dirs, ownership
from libvgpu.errors import AllocationRefused, UsageError

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,62}")


def parse_name(text: str) -> str:
    """Returns a name that no other target of a verb can be mistaken for.

    Raises:
        UsageError: naming the value and what is allowed.
    """
    if not _NAME.fullmatch(text) or text.startswith(("GPU-", "MIG-", "run-")):
        raise UsageError(
            f"--name {text!r} is not allowed: give a letter and up to 62 more letters, digits, "
            "dots, dashes or underscores, and nothing that begins with GPU-, MIG- or run-"
        )
    return text


def require_free_name(run_dir: Path, name: str) -> None:
    """Checks, within `core_sum.admitting`, that no live run has the name.

    Raises:
        AllocationRefused: one has it; the message says which.
    """
    for allocation in allocation_dirs.list_allocations(run_dir):
        meta = allocation.meta
        if meta.name != name or ownership.is_abandoned(run_dir, meta.allocation_id):
            continue
        raise AllocationRefused(
            f"--name {name!r} is the name of run {meta.allocation_id} of {run_dir} already",
            hint="choose another one, or wait until it ends; vgpuctl ps shows the runs",
        )
