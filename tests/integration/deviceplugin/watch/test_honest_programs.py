"""Honest work of every kind raises no alarm: nothing is charged besides a ledger, nobody accused.

Containers run side by side: random calls that take and give back device memory of
every kind (native/shim_fuzz.c: plain, pools, graphs, arrays, physical memory, code, contexts, and
memory shared between processes), several processes at a time that come and go; processes that
share one allocation, of which the owner ends first; and a program that takes most of its slice and
gives it back without a pause. ``VGPU_HONEST_ROUNDS`` says how many programs each of them runs.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from libvgpu._sources import LIFE_SOURCE
from libvgpu.artifacts import SIM_LIBRARY_DIR
from support import IS_LONG, ROOT, Compile
from support.node.watched import HOLD, Contained, WatchedNode, can_contain
from support.sim.programs import PRELUDE
from support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.skipif(not can_contain(), reason="may not make mount namespaces")

ROUNDS = int(os.environ.get("VGPU_HONEST_ROUNDS", 40 if IS_LONG else 1))
FAMILIES = ("memory", "graph", "array", "vmm", "share", "code", "context")
STEPS = 4000
GIB, MIB = 1 << 30, 1 << 20
ALARMS = (
    "unaccounted GPU memory is charged",
    "process bypasses the shim",
    "process of no allocation uses a GPU",
    "the process watch cannot see the GPUs' processes",
)

#: The owner of shared memory ends before those who opened it.
SHARE = """
import subprocess
class Handle(ctypes.Structure):
    _fields_ = [("data", ctypes.c_ubyte * 64)]
libcuda = ctypes.CDLL("libcuda.so.1")
open_context()
if len(sys.argv) > 1:
    address, handle = ctypes.c_uint64(), Handle.from_buffer_copy(bytes.fromhex(sys.argv[1]))
    assert libcuda.cuIpcOpenMemHandle_v2(ctypes.byref(address), handle, 1) == 0
    print("opened", flush=True)
    sys.stdin.readline()
    time.sleep(2.5)
    sys.exit()
handle, address = Handle(), check(cuda.cuMemAlloc(3 << 30))
assert libcuda.cuIpcGetMemHandle(ctypes.byref(handle), ctypes.c_uint64(int(address))) == 0
command = [sys.executable, "-c", sys.orig_argv[2], bytes(handle).hex()]
others = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
          for _ in range(2)]
for other in others: assert other.stdout.readline() == b"opened\\n"
time.sleep(2.5)
for other in others: other.stdin.close()
"""
BUSY = """
open_context()
for _ in range(300):
    held = [check(cuda.cuMemAlloc(512 << 20)) for _ in range(6)]
    stream = check(cuda.cuStreamCreate(0))
    pooled = check(cuda.cuMemAllocAsync(256 << 20, stream))
    check(cuda.cuMemFreeAsync(pooled, stream))
    for each in held: check(cuda.cuMemFree(each))
    check(cuda.cuStreamDestroy(stream))
"""


@pytest.fixture
def fuzz(compile_program: Compile) -> Path:
    parts = [f"tests/native/shim_fuzz_{name}.c" for name in FAMILIES]
    core = [str(path.relative_to(ROOT)) for path in (ROOT / "libvgpu/sim/core").glob("*.c")]
    sources = *parts, *sorted(core), LIFE_SOURCE
    return compile_program(
        "shim_fuzz.c", *sources, flags=(f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1")
    )


@pytest.fixture
def node(short_path: Path) -> Iterator[WatchedNode]:
    with WatchedNode(short_path, "h100-80g*3") as node:
        yield node


class Load:
    """Programs of containers, `ROUNDS` of them one after the other in each thread."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._threads: list[threading.Thread] = []

    def repeat(self, container: Contained, command: Callable[[int], list[str]], seed: int) -> None:
        """Runs commands in a container from now on."""
        thread = threading.Thread(target=self._run, args=(container, command, seed))
        self._threads.append(thread)
        thread.start()

    def _run(self, container: Contained, command: Callable[[int], list[str]], seed: int) -> None:
        for number in range(ROUNDS):
            program = container.spawn(command(seed + 1000 * number))
            try:
                _, said = program.communicate(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                said = "it did not end"
                program.kill()
            if program.returncode != 0:
                self.problems.append(f"{program.args!r}: {program.returncode}: {said}")

    def join(self) -> None:
        """Waits until all have ended well."""
        for thread in self._threads:
            thread.join()
        assert not self.problems, self.problems[0]


@pytest.mark.timeout(3000)
def test_honest_load_raises_no_alarm(node: WatchedNode, fuzz: Path) -> None:
    everything = node.contain("everything", memory_gib=0, core=200)  # two whole GPUs
    sharing, busy = node.contain("sharing", 24, 20), node.contain("busy", 8, 20)
    assert len(everything.devices) == 2
    load = Load()
    for number in range(3):
        load.repeat(everything, lambda seed: [str(fuzz), str(seed), str(STEPS), ""], number)
    load.repeat(sharing, lambda seed: [sys.executable, "-c", PRELUDE + SHARE], 0)
    load.repeat(busy, lambda seed: [sys.executable, "-c", PRELUDE + BUSY], 0)
    load.join()

    alarms = [line for alarm in ALARMS for line in node.lines(alarm)]
    assert not alarms, alarms[0]
    assert node.metric("vgpu_gpu_memory_unaccounted_bytes") == 0
    busy.start(HOLD, GIB, shim=False)  # and one alarm is raised where there is reason
    wait_until(lambda: bool(node.lines("process bypasses the shim")))
