"""A stream with no room for more, under a cap: who records an event there waits, and nobody else.

What would make room waits for the other thread, as where a host function needs a lock of the
program. The simulated driver takes 1024 operations of a stream, as an H100 does about.
"""

import json

import pytest

from libvgpu.sim import Machine
from support.shim.slices import SliceOf

GIB = 1 << 30
PATIENCE_SECONDS = "5"

PROGRAM = """
import json, sys, threading
from support.shim.cuda_client import *
context = open_context()
spinner = Spinner(1000)
libcuda = ctypes.CDLL("libcuda.so.1")
full, free, old = spinner.stream, *(check(driver.cuStreamCreate(1)) for _ in range(2))
def launch(stream, blocks=1):
    return libcuda.cuLaunchKernel(ctypes.c_void_p(int(spinner._function)), blocks, 1, 1, 1, 1, 1, 0,
                                  ctypes.c_void_p(int(stream)), spinner._arguments, None)
for stream in (full, free) * 200:
    launch(stream)
    check(driver.cuStreamSynchronize(stream))
may_go, waited = threading.Event(), []
def wait(_): waited.append(may_go.wait(int(sys.argv[1])))
call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(wait)
def fill(blocks):
    libcuda.cuCtxSetCurrent(ctypes.c_void_p(int(context)))
    for _ in range(1200):
        launch(full, blocks)
check(driver.cuLaunchHostFunc(full, ctypes.cast(call, ctypes.c_void_p).value, 0))
threads = []
for blocks in (1, 64, 1024):  # of each kind but the first nobody knows the price
    threads.append(threading.Thread(target=fill, args=(blocks,)))
    threads[-1].start()
    time.sleep(0.5)
took = {}
def timed(name, do):
    before = time.monotonic()
    answer = do()
    took[name] = time.monotonic() - before
    return answer
codes = [timed("launch", lambda: launch(free)), timed("new kind", lambda: launch(free, 4096)),
         timed("wait", lambda: libcuda.cuStreamSynchronize(ctypes.c_void_p(int(free)))),
         timed("end", lambda: libcuda.cuStreamDestroy_v2(ctypes.c_void_p(int(old))))]
is_full = all(thread.is_alive() for thread in threads)
may_go.set()
for thread in threads:
    thread.join()
check(driver.cuCtxSynchronize())
print(json.dumps({"took": took, "codes": codes, "full": is_full, "waited": waited}))
"""

pytestmark = pytest.mark.virtual


def test_other_streams_go_on(machine: Machine, slice_of: SliceOf) -> None:
    part = slice_of(machine, memory_bytes=GIB, core_percent=50)

    said = json.loads(" ".join(part.run(PROGRAM, PATIENCE_SECONDS)))

    assert said["codes"] == [0, 0, 0, 0]
    assert said["waited"] == [True]  # before its patience ended
    assert said["full"]
    assert max(said["took"].values()) < 1
