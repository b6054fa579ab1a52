"""What players play: real programs from their traces, loops of short kernels, queues and training.

The loops of the first run on an H100 launched kernels of 5 us "each 15 us". Bare, each of a pair
came to 62 000 launches a second, one in 16.1 us; a launch took the caller 4.4 us on average, and
under a cap of 90 % 6.5 us, with which 11 to 14 % fewer were done. That fits only if what is fixed
is the host's work from the end of a launch to the next one, 11.7 us, and not the period: a launch
that takes longer is not hidden by waiting less.
"""

from dataclasses import dataclass

from .tenant_programs import format_ns
from .trace import DIRECTORY, Row, Trace, read_trace
from .trace_plan import Plan, make_plan

LOOP_KERNEL_NS, LOOP_GAP_NS = 5_000, 11_700
#: Launches a second of a loop, bare.
SILICON_LOOP_PER_SECOND = 62_000.0
#: Launches of a loop that count as one step, at least.
_LOOP_STEP = 512
_QUEUE_STEP = 16
_QUEUE_BLOCKS, _QUEUE_THREADS = 264, 1024
_TRAINING_KERNELS, _TRAINING_KINDS, _TRAINING_GAP_NS = 200, 40, 5_000
#: 1 MiB by PCIe 5.0 x16, at the 26 GB/s that others report of pinned memory.
_MIB_COPY_NS = 40_000
_MS_PER_SECOND = 1000.0
_MS_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class Loop:
    """Short kernels without end, of so many kinds that take turns, with host work in between."""

    kinds: int

    def __str__(self) -> str:
        return f"loop of {self.kinds} kind{'s' if self.kinds > 1 else ''}"


@dataclass(frozen=True, slots=True)
class Queue:
    """Kernels of one kind that fill a GPU, launched as deep as the driver lets its caller."""

    kernel_ns: int

    def __str__(self) -> str:
        return f"queue of {format_ns(self.kernel_ns)} kernels"


@dataclass(frozen=True, slots=True)
class Training:
    """Steps that copy pinned memory to the GPU and back, each of which waits for the copy back."""

    kernel_ns: int

    def __str__(self) -> str:
        return f"training with pinned copies, {format_ns(self.kernel_ns)} kernels"


#: A trace by its name, a loop, a queue, or training.
Program = Loop | Queue | Training | str


def loop_plan(kinds: int) -> Plan:
    """Returns a loop of so many kernels that take turns; a step is some rounds of them."""
    rounds = -(-_LOOP_STEP // kinds)
    step = tuple(
        Row("cuLaunchKernel", 0, LOOP_GAP_NS, "cuLaunchKernel", kind=kind, blocks=1, threads=32,
            gpu_ns=LOOP_KERNEL_NS)
        for _ in range(rounds) for kind in range(kinds)
    )  # fmt: skip
    plain_step_ms = _MS_PER_SECOND * len(step) / SILICON_LOOP_PER_SECOND
    trace = Trace(str(Loop(kinds)), plain_step_ms, kinds, (step,))
    return Plan(trace, (1.0,), (), len(step) * LOOP_KERNEL_NS, 0)


def queue_plan(kernel_ns: int) -> Plan:
    """Returns kernels of that length in a row, which never waits for the GPU by itself."""
    row = Row("cuLaunchKernel", 0, 0, "cuLaunchKernel", blocks=_QUEUE_BLOCKS,
              threads=_QUEUE_THREADS, gpu_ns=kernel_ns)  # fmt: skip
    busy_ns = _QUEUE_STEP * kernel_ns
    trace = Trace(str(Queue(kernel_ns)), busy_ns / _MS_NS, 1, ((row,) * _QUEUE_STEP,))
    return Plan(trace, (1.0,), (), busy_ns, 0)


def training_plan(kernel_ns: int) -> Plan:
    """Returns steps of two copies of 1 MiB in, kernels of 40 kinds, and the loss out."""
    inward = Row("cudaMemcpyAsync", 0, _TRAINING_GAP_NS, "cuMemcpyHtoDAsync",
                 gpu_ns=_MIB_COPY_NS, bytes=1 << 20, copy="pinned to device")  # fmt: skip
    kernels = tuple(
        Row("cudaLaunchKernel", 0, _TRAINING_GAP_NS, "cuLaunchKernel",
            kind=number % _TRAINING_KINDS, blocks=_QUEUE_BLOCKS, threads=256, gpu_ns=kernel_ns)
        for number in range(_TRAINING_KERNELS)
    )  # fmt: skip
    outward = Row("cudaMemcpyAsync", 0, _TRAINING_GAP_NS, "cuMemcpyDtoHAsync", gpu_ns=2_000,
                  bytes=4, copy="device to pinned")  # fmt: skip
    wait = Row("cudaStreamSynchronize", 0, _TRAINING_GAP_NS, "cuStreamSynchronize")
    busy_ns = _TRAINING_KERNELS * kernel_ns
    step = (inward, inward, *kernels, outward, wait)
    trace = Trace(str(Training(kernel_ns)), busy_ns / _MS_NS, _TRAINING_KINDS, (step,))
    return Plan(trace, (1.0,), (), busy_ns, 0)


def plan_of(program: Program) -> Plan:
    """Returns what a player is to do.

    Raises:
        VgpuError: there is no trace of that name, or it is damaged.
    """
    if isinstance(program, Loop):
        return loop_plan(program.kinds)
    if isinstance(program, Queue):
        return queue_plan(program.kernel_ns)
    if isinstance(program, Training):
        return training_plan(program.kernel_ns)
    return make_plan(read_trace(DIRECTORY / f"{program}.json.gz"))


def silicon_steps(plan: Plan) -> float:
    """Returns how many steps a second a program did on silicon, bare and alone."""
    return _MS_PER_SECOND / plan.trace.plain_step_ms
