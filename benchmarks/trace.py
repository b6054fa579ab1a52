"""Reads a real program's launches as an H100 ran them, and checks every value of the file.

The form is described in traces/README.md. Rows are counted from 1, and so are steps, in messages
too. trace_plan.py makes of a trace what the player is to do.
"""

import gzip
import json
import reprlib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from libvgpu.errors import VgpuError

from .trace_calls import CALLS, COPIES

FORM = 1
#: Where the project's own traces are.
DIRECTORY = Path(__file__).resolve().parent / "traces"

_MS_NS = 10**6
_HOUR_NS = 3600 * 10**9
#: key -> smallest and largest value; what a kind may be depends on the trace.
_RANGES: Mapping[str, tuple[int, int]] = {
    "host_ns": (0, _HOUR_NS),
    "gap_ns": (0, _HOUR_NS),
    "gpu_ns": (0, _HOUR_NS),
    "stream": (0, 63),
    "event": (0, 63),
    "blocks": (1, 2**31 - 1),
    "threads": (1, 1024),
    "bytes": (1, 2**32),
}
_MOST_KINDS = 10_000


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
        VgpuError: it is missing, damaged, of a newer form, or a value is not what it may be.
    """
    return _read(path, may_have_graph=True)


def _read(path: Path, *, may_have_graph: bool) -> Trace:
    try:
        whole = json.loads(gzip.decompress(path.read_bytes()))
    except OSError as error:  # gzip's own error of a wrong beginning or checksum is one, too
        raise VgpuError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (EOFError, zlib.error) as error:
        raise VgpuError(f"{path}: the gzip file is damaged: {error}") from None
    except (ValueError, RecursionError) as error:
        raise VgpuError(f"{path}: does not hold JSON: {error}") from None
    if not isinstance(whole, dict):
        raise VgpuError(f"{path}: holds a {type(whole).__name__}, must be a JSON object")
    form = _value(whole, "form", str(path))
    if form != FORM or isinstance(form, bool):
        raise VgpuError(
            f"{path}: key 'form' is {_short(form)}, and this player knows only form {FORM}"
        )
    program = _value(whole, "program", str(path))
    if not isinstance(program, str):
        raise VgpuError(f"{path}: key 'program' is {_short(program)}, must be a name")
    plain_ms = _milliseconds(whole, "plain_step_ms", str(path))
    kinds = _number(whole, "kinds", str(path), (0, _MOST_KINDS))
    steps = _value(whole, "steps", str(path))
    if not isinstance(steps, list) or not steps or not all(steps):
        raise VgpuError(f"{path}: key 'steps' must be a list of at least one step, none empty")
    read = tuple(_step(step, kinds, f"{path}: step {i}") for i, step in enumerate(steps, 1))
    if not any(row.call == "cudaGraphLaunch" for step in read for row in step):
        return Trace(program, plain_ms, kinds, read)
    if not may_have_graph:
        raise VgpuError(f"{path}: launches a graph, so no other trace's graph can be of it")
    if kinds:
        raise VgpuError(f"{path}: key 'kinds' is {kinds}, must be 0 where a graph is launched")
    source = _source(_value(whole, "nodes_of", str(path)), path)
    nodes = tuple(row for row in source.steps[0] if row.is_work)
    if not nodes:
        raise VgpuError(f"{path}: key 'nodes_of' names {source.program}, which gives a GPU no work")
    return Trace(program, plain_ms, source.kinds, read, nodes)


def _source(name: object, path: Path) -> Trace:
    """Reads the trace whose work a graph has, which stands next to the graph's."""
    if not isinstance(name, str) or not name.isalnum():
        raise VgpuError(f"{path}: key 'nodes_of' is {_short(name)}, must name another trace")
    return _read(path.with_name(f"{name}.json.gz"), may_have_graph=False)


def _step(rows: object, kinds: int, place: str) -> tuple[Row, ...]:
    if not isinstance(rows, list):
        raise VgpuError(f"{place}: is a {type(rows).__name__}, must be a list of rows")
    return tuple(_row(row, kinds, f"{place}, row {number}") for number, row in enumerate(rows, 1))


def _row(row: object, kinds: int, place: str) -> Row:
    if not isinstance(row, dict):
        raise VgpuError(f"{place}: is a {type(row).__name__}, must be an object")
    call = _value(row, "call", place)
    if not isinstance(call, str) or call not in CALLS:
        raise VgpuError(f"{place}: key 'call' is {_short(call)}, which this player does not know")
    driver_call, keys = CALLS[call]
    ranges = dict(_RANGES, kind=(0, kinds - 1))
    numbers = {
        key: _number(row, key, place, ranges[key])
        for key in ("host_ns", "gap_ns", *keys)
        if key != "copy"
    }
    copy = ""
    if "copy" in keys:
        copy = _choice(row, "copy", place, tuple(COPIES))
        driver_call = COPIES[copy]
    return Row(call=call, driver_call=driver_call, copy=copy, **numbers)


def _short(value: object) -> str:
    return reprlib.repr(value)


def _value(values: Mapping[str, object], key: str, place: str) -> object:
    if key not in values:
        raise VgpuError(f"{place}: key {key!r} is missing")
    return values[key]


def _number(values: Mapping[str, object], key: str, place: str, between: tuple[int, int]) -> int:
    value = _value(values, key, place)
    low, high = between
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        allowed = f"must be an integer from {low} to {high}" if low <= high else "there is none"
        raise VgpuError(f"{place}: key {key!r} is {_short(value)}, {allowed}")
    return value


def _milliseconds(values: Mapping[str, object], key: str, place: str) -> float:
    value = _value(values, key, place)
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not 0 < value <= _HOUR_NS / _MS_NS
    ):
        raise VgpuError(
            f"{place}: key {key!r} is {_short(value)}, must be above 0, at most an hour"
        )
    return float(value)


def _choice(values: Mapping[str, object], key: str, place: str, among: Sequence[str]) -> str:
    value = _value(values, key, place)
    if not isinstance(value, str) or value not in among:
        raise VgpuError(
            f"{place}: key {key!r} is {_short(value)}, must be one of {', '.join(among)}"
        )
    return value
