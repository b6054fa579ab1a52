"""Reads a real program's launches as an H100 ran them.

The form is described in traces/README.md. trace_plan.py makes of a trace what the player is to do.
"""

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from libvgpu.errors import VgpuError

from .trace_calls import CALLS, COPIES

FORM = 1
#: Where the project's own traces are.
DIRECTORY = Path(__file__).resolve().parent / "traces"


@dataclass(frozen=True, slots=True)
class Row:
    """One call of the program; what a call does not have is 0.

    Attributes:
        call: what the program called.
        host_ns: how long the call took, under the profiler.
        gap_ns: from its end to the beginning of the next call, under the profiler.
        driver_call: what it asks of the driver; None: nothing.
        stream: 0 is the legacy default stream.
        kind: which kernel.
        blocks: of the launch.
        threads: of a block.
        gpu_ns: how long the GPU was at it.
        bytes: of a memset or copy.
        copy: what a copy goes between; empty for all else.
        event: which one.
    """

    call: str
    host_ns: int
    gap_ns: int
    driver_call: str | None
    stream: int = 0
    kind: int = 0
    blocks: int = 0
    threads: int = 0
    gpu_ns: int = 0
    bytes: int = 0
    copy: str = ""
    event: int = 0

    @property
    def is_work(self) -> bool:
        """Whether it gives the GPU one piece of work; a graph is many."""
        return "gpu_ns" in CALLS[self.call][1]


@dataclass(frozen=True, slots=True)
class Trace:
    """Some steps of a program.

    Attributes:
        program: its name.
        plain_step_ms: how long a step takes without a profiler.
        kinds: how many different kernels it launches.
        steps: the calls of each.
        nodes: of its graph, in order; empty where it launches none.
    """

    program: str
    plain_step_ms: float
    kinds: int
    steps: tuple[tuple[Row, ...], ...]
    nodes: tuple[Row, ...] = ()

    @property
    def launches_per_step(self) -> float:
        """Launches, memsets and copies of a step on average; the launch of a graph is one."""
        work = sum(r.is_work or r.call == "cudaGraphLaunch" for step in self.steps for r in step)
        return work / len(self.steps)


def read_trace(path: Path) -> Trace:
    """Returns what a file holds.

    Raises:
        VgpuError: it is missing, damaged or of another form.
    """
    try:
        whole = json.loads(gzip.decompress(path.read_bytes()))
        if whole["form"] != FORM:
            raise VgpuError(f"{path}: is of form {whole['form']}, and this player knows {FORM}")
        steps = tuple(tuple(_row(row) for row in step) for step in whole["steps"])
    # gzip's own error of a wrong beginning or checksum is an OSError, and JSON's a ValueError.
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise VgpuError(f"{path}: cannot be read: {type(error).__name__} {error}") from None
    made = Trace(whole["program"], whole["plain_step_ms"], whole["kinds"], steps)
    if "nodes_of" not in whole:
        return made
    graph = read_trace(path.with_name(f"{whole['nodes_of']}.json.gz"))
    nodes = tuple(row for row in graph.steps[0] if row.is_work)
    return replace(made, kinds=graph.kinds, nodes=nodes)


def _row(row: Mapping[str, Any]) -> Row:
    driver_call, keys = CALLS[row["call"]]
    values = {key: row[key] for key in ("host_ns", "gap_ns", *keys)}
    if "copy" in keys:
        driver_call = COPIES[row["copy"]]
    return Row(call=row["call"], driver_call=driver_call, **values)
