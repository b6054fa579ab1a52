"""Programs that share memory of the simulated GPU, or take it apart."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from libvgpu.sim import Machine
from support.lines import Listening
from support.sim.programs import finish, start
from support.waiting import PATIENCE_S

GRANULE = 2 << 20

#: Names for programs: pieces of one granule unless they say otherwise.
VMM = f"""
GRANULE = {GRANULE}
def properties(exported=False, host=False):
    wanted = cuda.CUmemAllocationProp()
    wanted.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    kinds = cuda.CUmemLocationType
    wanted.location.type = (kinds.CU_MEM_LOCATION_TYPE_HOST if host
                            else kinds.CU_MEM_LOCATION_TYPE_DEVICE)
    wanted.location.id = 0
    if exported:
        wanted.requestedHandleTypes = POSIX
    return wanted
POSIX = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
NONE, READ_WRITE = (cuda.CUmemAccess_flags(flags) for flags in (0, 3))
def create(granules=1, **how): return check(cuda.cuMemCreate(granules * GRANULE, properties(**how), 0))
def reserve(granules=1): return int(check(cuda.cuMemAddressReserve(granules * GRANULE, 0, 0, 0)))
def descriptor(flags=READ_WRITE):
    wanted = cuda.CUmemAccessDesc()
    wanted.location = properties().location
    wanted.flags = flags
    return wanted
def grant(address, granules=1, flags=READ_WRITE):
    return int(cuda.cuMemSetAccess(address, granules * GRANULE, [descriptor(flags)], 1)[0])
def map_at(address, handle, granules=1):
    return int(cuda.cuMemMap(address, granules * GRANULE, 0, handle, 0)[0])
def unmap(address, granules=1): return int(cuda.cuMemUnmap(address, granules * GRANULE)[0])
def write(address, data): return int(cuda.cuMemcpyHtoD(address, data, len(data))[0])
def read(address, count):
    data = bytearray(count)
    check(cuda.cuMemcpyDtoH(data, address, count))
    return bytes(data)
def used():
    free, total = check(cuda.cuMemGetInfo())
    return (total - free) // GRANULE
"""  # noqa: E501

#: Multicast objects; behind `VMM`.
MULTICAST = """
def wanted(granules=4, devices=1, handle_types=0):
    made = cuda.CUmulticastObjectProp()
    made.numDevices, made.size, made.handleTypes = devices, granules * GRANULE, handle_types
    return made
def team(granules=4, devices=(0,)):
    made = check(cuda.cuMulticastCreate(wanted(granules, len(devices))))
    for device in devices: check(cuda.cuMulticastAddDevice(made, device))
    return made
def bind(team, memory, granules=1, at=0, memory_at=0):
    return code(cuda.cuMulticastBindMem(team, at * GRANULE, memory, memory_at * GRANULE,
                                        granules * GRANULE, 0))
def bind_address(team, address, granules=1, at=0):
    return code(cuda.cuMulticastBindAddr(team, at * GRANULE, address, granules * GRANULE, 0))
def unbind(team, granules=1, at=0, device=0):
    return code(cuda.cuMulticastUnbind(team, device, at * GRANULE, granules * GRANULE))
def release(handle): return code(cuda.cuMemRelease(handle))
def create_on(device, granules=1):
    where = properties()
    where.location.id = device
    return check(cuda.cuMemCreate(granules * GRANULE, where, 0))
"""

#: Programs answer one line for one line: `serve` runs what it reads and says what it returns.
SERVE = (
    VMM
    + """
import socket
def serve():
    for line in sys.stdin:
        try:
            answer = eval(line, globals())
        except CudaError as error:
            answer = {"code": error.code}
        print(json.dumps(answer), flush=True)
def own():
    free, total = check(cuda.cuMemGetInfo())
    return total - free
def hexadecimal(opaque): return ctypes.string_at(opaque.getPtr(), 64).hex()
def fill(opaque, text): ctypes.memmove(opaque.getPtr(), bytes.fromhex(text), 64)
def ipc_handle(address): return hexadecimal(check(cuda.cuIpcGetMemHandle(address)))
def ipc_open(text):
    handle = cuda.CUipcMemHandle()
    fill(handle, text)
    return int(check(cuda.cuIpcOpenMemHandle(handle, 1)))
def send(descriptor, path):
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        socket.send_fds(line, [b"x"], [descriptor])
def receive(path):
    with socket.socket(socket.AF_UNIX) as line:
        line.bind(path)
        line.listen()
        print(json.dumps("listens"), flush=True)
        with line.accept()[0] as peer:
            return socket.recv_fds(peer, 1, 1)[1][0]
def put(name, value): globals()[name] = value; return 0
def text(address, count): return read(address, count).decode()
open_context()
"""
)


class Program(Listening):
    """A program that evaluates what it is told; `text` may define more."""

    def __init__(self, machine: Machine, text: str = "", **environment: str) -> None:
        super().__init__(start(machine, f"{SERVE}{text}\nserve()\n", environment))

    def value(self) -> Any:
        return json.loads(self.hear())

    def ask(self, expression: str) -> Any:
        self.tell(expression)
        return self.value()


@contextmanager
def pair(machine: Machine) -> Iterator[tuple[Program, Program]]:
    """Runs an exporter and an importer."""
    with ending(Program(machine), Program(machine)) as (exporter, importer):
        yield exporter, importer


@contextmanager
def ending(*programs: Program) -> Iterator[tuple[Program, ...]]:
    """Ends the programs, which must come to a good end."""
    try:
        yield programs
        for program in programs:
            if program.process.poll() is None:
                finish(program.process)
    finally:
        for program in programs:
            program.process.kill()
            program.process.wait(PATIENCE_S)


def hand_over(exporter: Program, importer: Program, descriptor: str, path: Path) -> None:
    """Gives a descriptor of one program to the other, as `given` there."""
    importer.tell(f"put('given', receive({str(path)!r}))")
    assert importer.value() == "listens"
    exporter.ask(f"send({descriptor}, {str(path)!r})")
    assert importer.value() == 0
