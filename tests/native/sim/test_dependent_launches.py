"""Dependent launches on the simulated GPU: a kernel begins while the one before it ends."""

from dataclasses import replace
from pathlib import Path

import pytest

from libvgpu.sim import PROFILES, Machine
from support.sim.programs import run, said_in

US = 1000
OVERLAP_NS = PROFILES["h100-80g"].calibration.dependent_overlap_ns
LAUNCHES = 10

#: What is launched waits for `go`, so that all of it is there before the first kernel begins.
PRELUDE = """
import threading
A = cuda.CUlaunchAttributeID
context = open_context()
f = check(cuda.cuModuleGetFunction(check(cuda.cuModuleLoadData(SPIN_PTX)), b"spin_ns"))
go = threading.Event()
kept = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: go.wait(60))
def new_stream(): return check(cuda.cuStreamCreate(1))
def hold(stream):
    check(cuda.cuLaunchHostFunc(stream, ctypes.cast(kept, ctypes.c_void_p).value, 0))
def launch(stream, us, dependent=1, event=None):
    config = cuda.CUlaunchConfig()
    config.gridDimX = config.gridDimY = config.gridDimZ = 1
    config.blockDimX = config.blockDimY = config.blockDimZ = 1
    config.hStream = stream
    one = cuda.CUlaunchAttribute()
    if event is None:
        one.id = A.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        one.value.programmaticStreamSerializationAllowed = dependent
    else:
        one.id = A.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT
        one.value.programmaticEvent.event = event
    config.attrs, config.numAttrs = [one], 1
    values = ((int(us * 1000),), (ctypes.c_uint64,))
    return int(cuda.cuLaunchKernelEx(config, f, values, 0)[0])
def chain(us, between=None, **options):
    for i in range(10):
        if i == 5 and between:
            between()
        same(launch(stream, us, **options), 0)
def finish():
    go.set()
    check(cuda.cuCtxSynchronize())
stream = new_stream()
"""


def busy_ns(machine: Machine, code: str) -> int:
    run(machine, PRELUDE + code)
    (client,) = machine.books()[0].clients
    assert client.launches == LAUNCHES
    return client.busy_ns


@pytest.mark.parametrize(
    ("code", "overlaps"),
    [
        ("chain(10)", 9),
        ("chain(10, dependent=0)", 0),
        ("chain(10, lambda: check(cuda.cuEventRecord(check(cuda.cuEventCreate(0)), stream)))", 8),
        ("chain(10, lambda: check(cuda.cuStreamSynchronize(new_stream())))", 9),
    ],
    ids=["chain", "plain", "event", "other stream"],
)
def test_a_chain_takes_less_than_its_kernels(machine: Machine, code: str, overlaps: int) -> None:
    busy = busy_ns(machine, f"hold(stream)\n{code}\nfinish()")

    assert busy == LAUNCHES * 10 * US - overlaps * OVERLAP_NS


def test_older_devices_have_none(tmp_path: Path) -> None:
    profile = replace(PROFILES["a100-80g"], context_bytes=0)
    older = Machine.create([profile], tmp_path / "m")

    assert busy_ns(older, "hold(stream)\nchain(10)\nfinish()") == LAUNCHES * 10 * US


def test_a_captured_chain_has_programmatic_edges(machine: Machine) -> None:
    code = """
check(cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
chain(10)
graph = check(cuda.cuStreamEndCapture(stream))
count = ctypes.c_size_t(9)
ends = [(ctypes.c_void_p * 9)() for _ in range(2)]
plain = ctypes.CDLL("libcuda.so.1").cuGraphGetEdges
same(plain(ctypes.c_void_p(int(graph)), *ends, ctypes.byref(count)), LOSSY_QUERY)
check(cuda.cuGraphLaunch(check(cuda.cuGraphInstantiate(graph, 0)), stream))
finish()
"""
    assert busy_ns(machine, code) == LAUNCHES * 10 * US - 9 * OVERLAP_NS


def test_an_event_of_a_launch_comes_before_its_end(machine: Machine) -> None:
    code = """
other = new_stream()
trigger = check(cuda.cuEventCreate(cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING))
begun, ended = (check(cuda.cuEventCreate(0)) for _ in range(2))
hold(stream)
same(launch(stream, 10, event=trigger), 0)
check(cuda.cuEventRecord(ended, stream))
check(cuda.cuStreamWaitEvent(other, trigger, 0))
check(cuda.cuEventRecord(begun, other))
same(launch(stream, 10, event=ended), INVALID_VALUE)
finish()
say(ms=check(cuda.cuEventElapsedTime(begun, ended)))
"""
    assert said_in(machine, PRELUDE + code)["ms"] == pytest.approx(OVERLAP_NS / 1e6)
