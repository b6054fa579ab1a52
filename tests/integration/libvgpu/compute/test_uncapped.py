"""Estimates of GPU time where nothing is held back, against the simulated GPU's own books."""

from pathlib import Path
from typing import Any

import pytest

from libvgpu.limits import ComputeMode, ContainerLimits, DeviceLimit, Family
from libvgpu.region import DeviceUsage, create
from libvgpu.sim import Machine
from support.lines import expect, tell
from support.shim.slices import Slice, SliceOf
from support.sim.programs import PRELUDE

GIB = 1 << 30
BEGIN = """
open_context()
short, long = Spinner(200_000), Spinner(4_000_000)
def until(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
"""
END = """
print("done", flush=True)
sys.stdin.readline()
"""


def work(part: Slice, code: str) -> tuple[DeviceUsage, Any]:
    """Returns what the books say of a program after its work: the shim's and the GPU's."""
    process = part.start(PRELUDE + BEGIN + code + END)
    expect(process, "done")
    (seen,) = part.usage().processes
    (client,) = part.machine.books()[0].clients
    return seen.devices[0], client


@pytest.fixture
def part(machine: Machine, slice_of: SliceOf) -> Slice:
    return slice_of(machine, memory_bytes=GIB)


@pytest.mark.virtual
@pytest.mark.parametrize(
    "code",
    [
        pytest.param("for _ in until(1.5): short.launch(); short.wait()", id="one"),
        pytest.param(
            "for _ in until(1.5): short.launch(); short.wait(); time.sleep(0.002)", id="idling"
        ),
        # a round is sampled some time after another: not always the short one behind the long
        pytest.param(
            "for _ in until(2.5):\n"
            "    for _ in range(3): long.launch(); long.wait()\n"
            "    short.launch(); short.wait()",
            id="by-turns",
        ),
        pytest.param(
            "for _ in until(2):\n    for _ in range(40): short.launch()\n    short.wait()",
            id="many",
        ),
        pytest.param(
            "tiny = Spinner(20_000)\n"
            "for _ in until(2):\n    for _ in range(3000): tiny.launch()\n    tiny.wait()",
            id="very-many",
        ),
        pytest.param(
            "other = Spinner(300_000)\n"
            "for _ in until(1.5): short.launch(); other.launch(); short.wait(); other.wait()",
            id="two-streams",
        ),
    ],
)
def test_the_estimate_is_near_the_truth(part: Slice, code: str) -> None:
    seen, client = work(part, code)

    assert seen.is_estimated
    assert seen.gpu_time_ns == pytest.approx(client.busy_ns, rel=0.25)
    assert seen.launches == pytest.approx(client.launches, rel=0.3)
    assert seen.held_ns == 0


@pytest.mark.virtual
def test_under_mps_it_is_an_estimate_too(machine: Machine, tmp_path: Path) -> None:
    limit = DeviceLimit(
        machine.devices[0].uuid,
        GIB,
        core_percent=30,
        compute_mode=ComputeMode.OFF,
        mps_thread_percentage=30,
    )
    create(tmp_path / "slice", ContainerLimits("mps", Family.MPS, (limit,)))
    part = Slice(machine, tmp_path / "slice")

    try:
        seen, client = work(part, "for _ in until(1): short.launch(); short.wait()")
    finally:
        part.close()

    assert seen.is_estimated
    assert seen.gpu_time_ns == pytest.approx(client.busy_ns, rel=0.25)


def test_never_more_is_credited_than_time_has_passed(part: Slice) -> None:
    code = """
begin = time.monotonic_ns()
for _ in until(0.5):
    short.launch(); short.wait(); short.wait(); long.launch(); long.wait()
passed_ns = time.monotonic_ns() - begin
print(passed_ns, file=sys.stderr, flush=True)
"""
    seen, client = work(part, code)

    assert seen.gpu_time_ns > 0
    assert seen.share_percent <= 100
    part.processes[-1].kill()
    passed_ns = int(part.processes[-1].communicate()[1])
    assert seen.gpu_time_ns <= passed_ns
    assert client.launches > 0


def test_what_never_waits_is_not_guessed_at(part: Slice) -> None:
    seen, client = work(part, "for _ in range(50): short.launch()\ntime.sleep(0.2)")

    assert client.launches == 50
    assert (seen.gpu_time_ns, seen.launches, seen.is_estimated) == (0, 0, False)


def test_launches_into_a_capture_are_no_work(part: Slice) -> None:
    code = """
mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
nodes = set()
for _ in until(0.6):
    check(cuda.cuStreamBeginCapture(short.stream, mode))
    for _ in range(20):
        short.launch()
    graph = check(cuda.cuStreamEndCapture(short.stream))
    nodes.add(check(cuda.cuGraphGetNodes(graph, 64))[1])
    check(cuda.cuGraphDestroy(graph))
    check(cuda.cuCtxSynchronize())
assert nodes == {20}, nodes
"""
    seen, client = work(part, code)

    assert client.launches == 0
    assert (seen.gpu_time_ns, seen.launches) == (0, 0)


@pytest.mark.virtual
def test_contexts_come_and_go(part: Slice) -> None:
    code = """
for _ in range(12):
    context = check(create_context())
    own = Spinner(300_000)
    for _ in until(0.05):
        own.launch(); own.wait()
    own.launch()
    check(cuda.cuCtxDestroy(context))
check(cuda.cuCtxSetCurrent(check(cuda.cuDevicePrimaryCtxRetain(0))))
for _ in until(0.3):
    short.launch(); short.wait()
"""
    seen, client = work(part, code)

    assert seen.is_estimated
    assert seen.gpu_time_ns == pytest.approx(client.busy_ns, rel=0.5)


@pytest.mark.virtual
def test_threads_share_the_samples_and_never_block_each_other(part: Slice) -> None:
    code = """
import threading
def launch_and_wait():
    check(cuda.cuCtxSetCurrent(context))
    own = Spinner(500_000)
    for _ in until(1.5):
        own.launch(); own.wait()
context = check(cuda.cuCtxGetCurrent())
threads = [threading.Thread(target=launch_and_wait) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    seen, client = work(part, code)

    assert seen.is_estimated
    assert seen.gpu_time_ns == pytest.approx(client.busy_ns, rel=0.35)


@pytest.mark.virtual
def test_a_cap_set_live_ends_the_estimating(part: Slice) -> None:
    code = """
for _ in until(0.5):
    short.launch(); short.wait()
print("done", flush=True)
sys.stdin.readline()
for _ in until(0.5):
    short.launch(); short.wait()
"""
    before, _ = work(part, code)
    assert before.is_estimated

    part.change(core_percent=30)
    process = part.processes[-1]
    tell(process, "go")
    expect(process, "done")

    after = part.usage().processes[0].devices[0]
    assert after.held_ns > 0
    assert after.gpu_time_ns > before.gpu_time_ns
