"""A stream that is destroyed while it has work, as CUDA permits, under a cap."""

from libvgpu.sim import Machine
from support.shim.slices import SliceOf

GIB = 1 << 30

#: Each round leaves its stream with work. The kernels are alike, so that their time is soon known
#: and several are measured together.
CODE = """
from support.shim.cuda_client import *
open_context()
spinner = Spinner(20_000)
for _ in range(100):
    spinner.launch()
spinner.wait()
for _ in range(20):
    for _ in range(5):
        spinner.launch()
    old, spinner.stream = spinner.stream, check(driver.cuStreamCreate(1))
    check(driver.cuStreamDestroy(old))
    spinner.launch()
check(driver.cuCtxSynchronize())
print("alive")
"""


def test_without_a_cap_other_streams_go_on(machine: Machine, slice_of: SliceOf) -> None:
    assert slice_of(machine, memory_bytes=GIB).run(CODE) == ["alive"]


def test_under_a_cap_other_streams_go_on(machine: Machine, slice_of: SliceOf) -> None:
    assert slice_of(machine, memory_bytes=GIB, core_percent=50).run(CODE) == ["alive"]


#: A stream that another thread destroys once the launch on it has returned.
THREADS = """
import threading
from support.shim.cuda_client import *
context = open_context()
spinner = Spinner(20_000)
for _ in range(100):
    spinner.launch()
spinner.wait()
def end(stream):
    check(driver.cuCtxSetCurrent(context))
    check(driver.cuStreamDestroy(stream))
for _ in range(50):
    for _ in range(3):
        spinner.launch()
    old, spinner.stream = spinner.stream, None
    thread = threading.Thread(target=end, args=(old,))
    thread.start()
    thread.join()
    spinner.stream = check(driver.cuStreamCreate(1))
    spinner.launch()
check(driver.cuCtxSynchronize())
print("alive")
"""


def test_another_thread_may_destroy_it(machine: Machine, slice_of: SliceOf) -> None:
    assert slice_of(machine, memory_bytes=GIB, core_percent=50).run(THREADS) == ["alive"]
