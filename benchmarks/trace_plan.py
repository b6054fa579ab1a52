"""Makes of a trace what the player does: host gaps scaled to the program's plain speed.

Under the profiler calls and gaps were stretched. Here the gaps of each step get one factor, so that
they, the calls at their cost on silicon and the waits for the GPU make up the plain step. Pure; the
script it writes is read by native/trace_script.c.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from .trace import Row, Trace
from .trace_calls import REACH_NS, call_ns

_MOST_FACTOR = 16.0
_HALVINGS = 50
#: Far enough from the plain step for a factor to be looked for.
_TOLERANCE = 1e-3
#: A program that only the GPU holds up would fill the driver's queue, seconds deep.
_STEPS_AHEAD = 10
_MS_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class Composition:
    """What a step is made of, in ns of the host; the GPU works while it goes on.

    Attributes:
        gaps_ns: between calls, and calls that ask nothing of the driver.
        calls_ns: driver calls at their cost on silicon.
        waits_ns: for the GPU: at synchronisations, or because it is behind for good.
    """

    gaps_ns: float
    calls_ns: float
    waits_ns: float

    @property
    def total_ns(self) -> float:
        """How long the step takes."""
        return self.gaps_ns + self.calls_ns + self.waits_ns


@dataclass(frozen=True, slots=True)
class Plan:
    """What the player does.

    Attributes:
        trace: with scaled gaps, no calls that ask nothing of the driver, and a graph's nodes as
            long as they are with the pauses between them.
        factors: of the gaps of each step.
        steps: what each is made of.
        gpu_ns: GPU time of kernels that a step asks for, on average.
        sync_steps: it waits for the GPU after so many steps; 0: only where the program does.
    """

    trace: Trace
    factors: tuple[float, ...]
    steps: tuple[Composition, ...]
    gpu_ns: float
    sync_steps: int


def make_plan(trace: Trace) -> Plan:
    """Scales the gaps of a trace."""
    plain_ns = trace.plain_step_ms * _MS_NS
    nodes = _with_pauses(trace.nodes, plain_ns)
    node_ns = sum(row.gpu_ns for row in nodes)
    factors = tuple(_factor(step, plain_ns, node_ns) for step in trace.steps)
    pairs = list(zip(trace.steps, factors, strict=True))
    composed = tuple(compose(step, factor, node_ns) for step, factor in pairs)
    of_graph_ns = sum(row.gpu_ns for row in nodes if row.blocks)
    asked_ns = [sum(_kernel_ns(row, of_graph_ns) for row in step) for step in trace.steps]
    is_gpu_bound = all(
        busy_ns >= each.gaps_ns + each.calls_ns
        for busy_ns, each in zip(asked_ns, composed, strict=True)
    )
    played = tuple(tuple(_played(step, factor)) for step, factor in pairs)
    return Plan(
        replace(trace, steps=played, nodes=nodes),
        factors,
        composed,
        sum(asked_ns) / len(asked_ns),
        _STEPS_AHEAD if is_gpu_bound else 0,
    )


def compose(step: Sequence[Row], factor: float, node_ns: int) -> Composition:
    """Returns what a step is made of with gaps scaled so.

    Args:
        step: as measured.
        factor: of its gaps.
        node_ns: GPU time of the graph it launches.
    """
    clock_ns = gaps_ns = calls_ns = waits_ns = busy_ns = 0.0
    free_ns: defaultdict[int, float] = defaultdict(float)  # by stream
    recorded_ns: defaultdict[int, float] = defaultdict(float)  # by event
    called_ns = 0.0  # the end of the last call
    for row in step:
        cost_ns = 0
        if row.driver_call:
            cost_ns = call_ns(row.driver_call, clock_ns - called_ns)
        until_ns = 0.0
        if row.is_work or row.driver_call == "cuGraphLaunch":
            work_ns = row.gpu_ns if row.is_work else node_ns
            begin_ns = max(free_ns[row.stream], clock_ns + REACH_NS)
            free_ns[row.stream] = begin_ns + work_ns
            busy_ns += work_ns
            if "pageable" in row.copy:
                until_ns = free_ns[row.stream]
        elif row.driver_call == "cuEventRecord":
            recorded_ns[row.event] = free_ns[row.stream]
        elif row.driver_call == "cuStreamWaitEvent":
            free_ns[row.stream] = max(free_ns[row.stream], recorded_ns[row.event])
        elif row.driver_call == "cuEventSynchronize":
            until_ns = recorded_ns[row.event]
        elif row.driver_call == "cuStreamSynchronize":
            until_ns = free_ns[row.stream]
        elif row.driver_call == "cuCtxSynchronize":
            until_ns = max(free_ns.values(), default=0.0)
        wait_ns = max(0.0, until_ns - clock_ns)
        gap_ns = factor * (row.gap_ns + (0 if row.driver_call else row.host_ns))
        waits_ns, calls_ns, gaps_ns = waits_ns + wait_ns, calls_ns + cost_ns, gaps_ns + gap_ns
        clock_ns += wait_ns + cost_ns
        if row.driver_call:
            called_ns = clock_ns
        clock_ns += gap_ns
    behind_ns = max(0.0, busy_ns - clock_ns)
    return Composition(gaps_ns, calls_ns, waits_ns + behind_ns)


def script(plan: Plan) -> str:
    """Returns the lines that the player reads."""
    trace = plan.trace
    rows = [row for step in trace.steps for row in step]
    lines = [
        "trace 1",
        f"kinds {trace.kinds}",
        f"streams {1 + max(row.stream for row in rows)}",
        f"events {max((1 + row.event for row in rows if 'Event' in row.call), default=0)}",
        f"bytes {max((row.bytes for row in (*rows, *trace.nodes)), default=0)}",
        f"sync_steps {plan.sync_steps}",
    ]
    if trace.nodes:
        lines.append(f"graph {len(trace.nodes)}")
        lines += map(_line, trace.nodes)
    for step in trace.steps:
        lines.append(f"step {len(step)}")
        lines += map(_line, step)
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    what = row.driver_call or "nothing"
    if "pageable" in row.copy:
        what += "-pageable"
    number = row.event if "Event" in row.call else row.kind
    return (
        f"{what} {row.stream} {number} {row.blocks} {row.threads} {row.bytes} {row.gpu_ns} "
        f"{row.gap_ns}"
    )


def _with_pauses(nodes: Sequence[Row], plain_ns: float) -> tuple[Row, ...]:
    """Returns a graph's nodes, together as long as a step of the program.

    A step is one launch of the graph there, and the GPU is at it all the time: what the nodes leave
    of it passes between them. That takes a simulated GPU no time, so kernels are longer by it.
    """
    kernels = sum(row.blocks > 0 for row in nodes)
    if not kernels:
        return tuple(nodes)
    pause_ns = round(max(0.0, plain_ns - sum(row.gpu_ns for row in nodes)) / kernels)
    return tuple(
        replace(row, gpu_ns=row.gpu_ns + pause_ns if row.blocks else row.gpu_ns, gap_ns=0)
        for row in nodes
    )


def _factor(step: Sequence[Row], plain_ns: float, node_ns: int) -> float:
    """Returns the factor with which the step takes as long as a plain one, or comes closest."""

    def total_ns(factor: float) -> float:
        return compose(step, factor, node_ns).total_ns

    if abs(total_ns(1.0) - plain_ns) <= _TOLERANCE * plain_ns:
        return 1.0  # where the GPU says how long it takes, no factor is better than another
    low, high = 0.0, _MOST_FACTOR
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if total_ns(middle) < plain_ns else (low, middle)
    return high


def _kernel_ns(row: Row, of_graph_ns: int) -> int:
    if row.driver_call == "cuGraphLaunch":
        return of_graph_ns
    return row.gpu_ns if row.blocks else 0


def _played(step: Sequence[Row], factor: float) -> Iterator[Row]:
    """Yields the driver calls of a step; what asks nothing of the driver is gap."""
    kept: Row | None = None
    owed_ns = 0.0
    for row in step:
        if row.driver_call is None and kept is not None:
            owed_ns += factor * (row.host_ns + row.gap_ns)
            continue
        if kept is not None:
            yield replace(kept, gap_ns=round(owed_ns))
        owed_ns = factor * (row.gap_ns + (0 if row.driver_call else row.host_ns))
        kept = row
    if kept is not None:
        yield replace(kept, gap_ns=round(owed_ns))
