"""A program of `cuda.core`, as its users write them.

It goes once through what such programs use, checks what it gets, and prints what it measured as
JSON. It knows nothing of this project and runs on a real GPU, too.
"""

import json
import multiprocessing
from collections.abc import Callable
from typing import Any

import numpy
from cuda.core import (
    Device,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    EventOptions,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    ObjectCode,
    VirtualMemoryResource,
    VirtualMemoryResourceOptions,
    launch,
)
from cuda.core.graph import GraphDefinition

MIB = 1 << 20
KERNEL_NS = 5_000_000
PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin_ns(.param .u64 duration_ns)
{
    .reg .pred %p;
    .reg .u64 %begin, %now, %wanted;
    ld.param.u64 %wanted, [duration_ns];
    mov.u64 %begin, %globaltimer;
again:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %begin;
    setp.lt.u64 %p, %now, %wanted;
    @%p bra again;
    ret;
}
"""
DURATION = numpy.uint64(KERNEL_NS)
ONE_THREAD = LaunchConfig(grid=1, block=1)
TIMED = EventOptions(timing_enabled=True)
CHILD_SECONDS = 60
#: Whether another process has the memory mapped, and the last byte it reads there.
Answer = tuple[bool, int]


def timed_ms(stream: Any, work: Callable[[], object]) -> float:
    begin = stream.record(options=TIMED)
    work()
    end = stream.record(options=TIMED)
    end.sync()
    return float(end - begin)


def bytes_of(buffer: Any, stream: Any) -> Any:
    host = LegacyPinnedMemoryResource().allocate(buffer.size)
    host.copy_from(buffer, stream=stream)
    stream.sync()
    return numpy.from_dlpack(host).view(numpy.uint8)


def memory(device: Any, stream: Any) -> None:
    one, other = (device.allocate(MIB, stream=stream) for _ in range(2))
    one.fill(b"\x07", stream=stream)
    one.copy_to(other, stream=stream)
    assert (bytes_of(other, stream) == 7).all()
    one.close(stream)
    other.close(stream)
    mapped = VirtualMemoryResource(device, VirtualMemoryResourceOptions()).allocate(2 * MIB)
    mapped.fill(b"\x09", stream=stream)
    assert (bytes_of(mapped, stream) == 9).all()
    mapped.close()


def captured(stream: Any, kernel: Any) -> Any:
    """Returns a graph of four kernels, two of them side by side."""
    builder = stream.device.create_graph_builder().begin_building()
    launch(builder, ONE_THREAD, kernel, DURATION)
    forks = builder.split(2)
    for fork in forks:
        launch(fork, ONE_THREAD, kernel, DURATION)
    builder = type(builder).join(*forks)
    launch(builder, ONE_THREAD, kernel, DURATION)
    return builder.end_building().complete()


def defined(buffer: Any, kernel: Any) -> Any:
    """Returns a graph made node by node, with memory of its own and a host function."""
    definition = GraphDefinition()
    piece = definition.allocate(4096)
    filled = piece.memset(piece.dptr, 5, 4096)
    copied = filled.launch(ONE_THREAD, kernel, DURATION).memcpy(buffer, piece.dptr, 4096)
    copied.callback(lambda: None).deallocate(piece.dptr)
    assert len(definition.nodes()) == 6
    return definition.instantiate()


def other_process(resource: Any, buffer: Any, answers: "multiprocessing.Queue[Answer]") -> None:
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    answers.put((bool(resource.is_mapped), int(bytes_of(buffer, stream)[-1])))


def shared(device: Any, stream: Any) -> Answer:
    options = DeviceMemoryResourceOptions(max_size=2 * MIB, ipc_enabled=True)
    buffer = DeviceMemoryResource(device, options).allocate(MIB, stream=stream)
    buffer.fill(b"\x05", stream=stream)
    stream.sync()
    answers: multiprocessing.Queue[Answer] = multiprocessing.Queue()
    child = multiprocessing.Process(
        target=other_process, args=(buffer.memory_resource, buffer, answers)
    )
    child.start()
    answer = answers.get(timeout=CHILD_SECONDS)
    child.join()
    return answer


def main() -> None:
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    kernel = ObjectCode.from_ptx(PTX).get_kernel("spin_ns")
    memory(device, stream)
    graph = captured(stream, kernel)
    buffer = device.allocate(4096, stream=stream)
    made = defined(buffer, kernel)
    seen = {
        "capability": [int(part) for part in device.compute_capability],
        "processors": device.properties.multiprocessor_count,
        "launched_ms": timed_ms(stream, lambda: launch(stream, ONE_THREAD, kernel, DURATION)),
        "captured_ms": timed_ms(stream, lambda: graph.launch(stream)),
        "defined_ms": timed_ms(stream, lambda: made.launch(stream)),
        "shared": shared(device, stream),
        "bus_id": device.pci_bus_id,
    }
    assert (bytes_of(buffer, stream) == 5).all()
    device.sync()
    print(json.dumps(seen))


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    main()
