"""What tenants of one GPU are, and what they had of it.

A tenant is a slice with one or more processes of ``native/share_client.c``, which launch without
end, or of another program that begins when it is told. stage.py starts them and looks at the
device's books.
"""

from dataclasses import dataclass
from typing import Protocol

from libvgpu.limits import ComputeMode

_NS_PER_SECOND = 10**9
_UNITS = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"), (1, "ns"))


def format_ns(duration_ns: int) -> str:
    """Returns a duration in the largest unit that leaves it whole."""
    size, unit = next((size, unit) for size, unit in _UNITS if duration_ns % size == 0)
    return f"{duration_ns // size} {unit}"


class Client(Protocol):
    """What the processes of a tenant do."""

    def arguments(self, memory_bytes_per_second: int) -> list[str]:
        """Returns the program's arguments on a GPU of that bandwidth."""
        ...


class Tenant(Protocol):
    """What is started for a slice; `TenantProgram` says what the attributes are."""

    @property
    def client(self) -> Client: ...
    @property
    def core_percent(self) -> int: ...
    @property
    def mode(self) -> ComputeMode: ...
    @property
    def processes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class TenantClient:
    """What one process of a tenant does without end.

    Attributes:
        kernel_ns: length of a kernel, of a memset, or of one node of a graph.
        form: ``kernel``, ``cooperative``, ``graph`` or ``memset``.
        sync: it waits after every so many launches; 0 only where the driver's queue is full.
        blocks: of each launch.
        threads: of each block.
        waves: how many of the blocks come after each other where no more fit on the GPU at once;
            each has its part of the kernel.
        streams: used in turn.
        nodes: of the graph.
        polls: it waits by asking again and again.
    """

    kernel_ns: int
    form: str = "kernel"
    sync: int = 0
    blocks: int = 132
    threads: int = 1
    streams: int = 1
    nodes: int = 20
    waves: int = 1
    polls: bool = False

    @property
    def title(self) -> str:
        """What it does, for people."""
        what = {
            "kernel": "kernels",
            "cooperative": "cooperative kernels",
            "graph": f"graphs of {self.nodes} kernels",
            "memset": "memsets",
        }[self.form]
        words = [f"{what} of {format_ns(self.kernel_ns)}"]
        if self.form != "memset":
            words.append(f"{self.blocks} blocks")
        if self.streams > 1:
            words.append(f"{self.streams} streams")
        waits = {0: "queued", self.streams: "sync after each"}
        words.append("polls" if self.polls else waits.get(self.sync, f"sync after {self.sync}"))
        return ", ".join(words)

    def arguments(self, memory_bytes_per_second: int) -> list[str]:
        """Returns the program's arguments on a GPU of that bandwidth."""
        bytes_ = self.kernel_ns * memory_bytes_per_second // _NS_PER_SECOND
        values = {
            "form": self.form,
            "kernel_ns": self.kernel_ns,
            "blocks": self.blocks,
            "threads": self.threads,
            "waves": self.waves,
            "sync": self.sync,
            "poll": int(self.polls),
            "streams": self.streams,
            "nodes": self.nodes,
            "bytes": bytes_,
        }
        return [f"{word}={value}" for word, value in values.items()]


@dataclass(frozen=True, slots=True)
class TenantProgram:
    """One slice and what runs in it; its weight is its percentage.

    Attributes:
        client: what each of its processes does.
        core_percent: its share.
        mode: how it is held.
        processes: how many there are.
    """

    client: TenantClient
    core_percent: int = 100
    mode: ComputeMode = ComputeMode.STRICT
    processes: int = 1


@dataclass(frozen=True, slots=True)
class TenantReading:
    """What the books said at one moment: per tenant, since it began.

    Attributes:
        clock_ns: when (CLOCK_MONOTONIC).
        busy_ns: device time of the tenant's processes.
        launches: kernels of them that were completed.
    """

    clock_ns: int
    busy_ns: tuple[int, ...]
    launches: tuple[int, ...]


def shares(first: TenantReading, last: TenantReading) -> tuple[float, ...]:
    """Returns the percentage of the device that each tenant had between two looks."""
    window_ns = last.clock_ns - first.clock_ns
    return tuple(
        100 * (late - early) / window_ns
        for early, late in zip(first.busy_ns, last.busy_ns, strict=True)
    )


@dataclass(frozen=True, slots=True)
class Window:
    """One measured window.

    Attributes:
        shares: of each tenant, in percent of the device.
        p99_delay_ns: per tenant what one launch in a hundred took at least, of its slowest process;
            None where a process did not come to say it.
        looks: from its beginning to its end; more than two only where they were asked for.
    """

    shares: tuple[float, ...]
    p99_delay_ns: tuple[int | None, ...]
    looks: tuple[TenantReading, ...]
