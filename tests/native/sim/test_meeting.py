"""Kernels of the simulated GPU that spin on a peer's word, as those of collectives do."""

import pytest

from libvgpu.sim import Machine
from support.sim.programs import said_in

PRELUDE = """
from support.shim.device_code import ptx
context = open_context()
stream, other = check(cuda.cuStreamCreate(1)), check(cuda.cuStreamCreate(1))
code = ptx(".visible .entry any_meet_peer(.param .u64 own, .param .u64 peer) { ret; }")
meets = check(cuda.cuModuleGetFunction(check(cuda.cuModuleLoadData(code)), b"any_meet_peer"))
own = int(check(cuda.cuMemAlloc(8)))
peer = own + 4
check(cuda.cuMemsetD32(own, 0, 2))
def arguments(own, peer):
    values = (ctypes.c_uint64 * 2)(own, peer)
    pointers = (ctypes.c_void_p * 2)(ctypes.addressof(values), ctypes.addressof(values) + 8)
    kept.append((values, pointers))
    return ctypes.addressof(pointers)
kept = []
def launch(stream, own, peer):
    return int(cuda.cuLaunchKernel(meets, 1, 1, 1, 1, 1, 1, 0, stream, arguments(own, peer), 0)[0])
def comes(value): check(cuda.cuStreamWriteValue32(other, peer, value, 0))
def is_busy(): return int(cuda.cuStreamQuery(stream)[0]) == 600
def wait(): check(cuda.cuStreamSynchronize(stream))
def word(at):
    back = bytearray(4)
    check(cuda.cuMemcpyDtoH(back, at, 4))
    return int.from_bytes(back, "little")
"""

pytestmark = pytest.mark.virtual


def test_a_kernel_keeps_the_gpu_until_its_peer_has_come(machine: Machine) -> None:
    code = """
same(launch(stream, own, peer), 0)
time.sleep(0.05)
alone = is_busy()
comes(1)
wait()
say(alone=alone, own=word(own))
"""
    assert said_in(machine, PRELUDE + code) == {"alone": True, "own": 1}
    assert machine.books()[0].busy_ns / 1e6 == pytest.approx(50, abs=2)


def test_two_kernels_meet(machine: Machine) -> None:
    code = """
for _ in range(3):
    same(launch(stream, own, peer), 0)
    same(launch(other, peer, own), 0)
wait()
say(own=word(own), peer=word(peer))
"""
    assert said_in(machine, PRELUDE + code) == {"own": 3, "peer": 3}


def test_a_graph_with_such_a_kernel_meets_anew_at_each_launch(machine: Machine) -> None:
    code = """
check(cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode(2)))
same(launch(stream, own, peer), 0)
made = check(cuda.cuGraphInstantiate(check(cuda.cuStreamEndCapture(stream)), 0))
alone = []
for turn in (1, 2):
    check(cuda.cuGraphLaunch(made, stream))
    time.sleep(0.02)
    alone.append(is_busy())
    comes(turn)
    wait()
say(alone=alone, own=word(own))
"""
    assert said_in(machine, PRELUDE + code) == {"alone": [True, True], "own": 2}
    assert machine.books()[0].busy_ns / 1e6 == pytest.approx(40, abs=3)


def test_words_that_are_no_memory_of_the_device_are_refused(machine: Machine) -> None:
    said = said_in(machine, PRELUDE + "say(error=launch(stream, own, 8))")

    assert said == {"error": 1}
