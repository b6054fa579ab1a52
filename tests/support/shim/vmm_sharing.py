"""Served programs under a slice that give memory of handles to each other, by descriptor."""

from pathlib import Path

from support.shim.served import Served

#: Sizes are in bytes; handles are known by their place in `handles`.
PROGRAM = """
open_context()
kinds = driver.CUmemLocationType
POSIX = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
handles, lines, given = [], [], []
def create(bytes):
    wanted = driver.CUmemAllocationProp()
    wanted.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = kinds.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id = 0
    wanted.requestedHandleTypes = POSIX
    handles.append(check(driver.cuMemCreate(bytes, wanted, 0)))
    return len(handles) - 1
def export(at): return int(check(driver.cuMemExportToShareableHandle(handles[at], POSIX, 0)))
def listen(path):
    lines.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    lines[-1].bind(path)
def receive():
    given.append(socket.recv_fds(lines[-1], 1, 1)[1][0])
    return given[-1]
def send(descriptor, path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.connect(path)
        socket.send_fds(line, [b"x"], [descriptor])
def import_handle(descriptor):
    handles.append(check(driver.cuMemImportFromShareableHandle(descriptor, POSIX)))
    return len(handles) - 1
def map(at, bytes):
    address = check(driver.cuMemAddressReserve(bytes, 0, 0, 0))
    answer = code(driver.cuMemMap(address, bytes, 0, handles[at], 0))
    return [answer, int(address)]
def unmap(address, bytes): return code(driver.cuMemUnmap(address, bytes))
def release(at): return code(driver.cuMemRelease(handles[at]))
def allocate(bytes): return code(driver.cuMemAlloc(bytes))
def import_external(descriptor, bytes):
    wanted = driver.CUDA_EXTERNAL_MEMORY_HANDLE_DESC()
    kind = driver.CUexternalMemoryHandleType.CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD
    wanted.type = kind
    wanted.handle.fd = descriptor
    wanted.size = bytes
    handles.append(check(driver.cuImportExternalMemory(wanted)))
    return len(handles) - 1
def buffer_of(at, bytes):
    wanted = driver.CUDA_EXTERNAL_MEMORY_BUFFER_DESC()
    wanted.size = bytes
    return int(check(driver.cuExternalMemoryGetMappedBuffer(handles[at], wanted)))
def foreign(bytes):
    descriptor = os.memfd_create("foreign")
    os.ftruncate(descriptor, bytes)
    return descriptor
def destroy_external(at): return code(driver.cuDestroyExternalMemory(handles[at]))
"""


def hand_over(exporter: Served, importer: Served, descriptor: int, folder: Path) -> int:
    """Sends a descriptor from one program to the other; returns its number there."""
    path = str(folder / "line")
    Path(path).unlink(missing_ok=True)
    importer.ask(f"listen({path!r})")
    exporter.ask(f"send({descriptor}, {path!r})")
    number = importer.ask("receive()")
    assert isinstance(number, int)
    return number
