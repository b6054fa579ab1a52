"""Two simulated GPUs of one machine and each other's memory."""

import json
from pathlib import Path

import pytest

from libvgpu.sim import PROFILES, Machine
from support.sim.programs import run


@pytest.fixture
def three(tmp_path: Path) -> Machine:
    """Two GPUs of one architecture and one of another."""
    profiles = [PROFILES[name] for name in ("h100-80g", "h100-80g", "t4")]
    return Machine.create(profiles, tmp_path / "machine")


PEERS = """
check(cuda.cuInit(0))
contexts = [check(cuda.cuDevicePrimaryCtxRetain(check(cuda.cuDeviceGet(i)))) for i in range(3)]
one, other, foreign = contexts
check(cuda.cuCtxSetCurrent(one))
"""


def test_gpus_of_one_architecture_can_be_peers(three: Machine) -> None:
    code = """
LINK = cuda.CUdevice_P2PAttribute
def link(name, source, target):
    attribute = getattr(LINK, f"CU_DEVICE_P2P_ATTRIBUTE_{name}")
    error, value = cuda.cuDeviceGetP2PAttribute(attribute, source, target)
    return value if int(error) == 0 else -int(error)
say(can=[[check(cuda.cuDeviceCanAccessPeer(i, j)) for j in range(3)] for i in range(3)],
    access=[link("ACCESS_SUPPORTED", 0, 1), link("ACCESS_SUPPORTED", 0, 2)],
    arrays=link("CUDA_ARRAY_ACCESS_SUPPORTED", 0, 1),
    atomics=link("NATIVE_ATOMIC_SUPPORTED", 0, 1), itself=link("ACCESS_SUPPORTED", 0, 0))
"""
    assert json.loads(run(three, PEERS + code)) == {
        "can": [[0, 1, 0], [1, 0, 0], [0, 0, 0]],
        "access": [1, 0],
        "arrays": 1,
        "atomics": 0,
        "itself": -101,
    }


def test_access_is_enabled_once_and_in_one_direction(three: Machine) -> None:
    code = """
def enable(peer, flags=0): return int(cuda.cuCtxEnablePeerAccess(peer, flags)[0])
def disable(peer): return int(cuda.cuCtxDisablePeerAccess(peer)[0])
say(before=disable(other), flags=enable(other, 1), itself=enable(one), foreign=enable(foreign),
    nobody=enable(0), twice=[enable(other), enable(other)],
    back=[cuda.cuCtxSetCurrent(other) and disable(one), enable(one)],
    after=[cuda.cuCtxSetCurrent(one) and disable(other), disable(other)],
    again=enable(other), reset=int(cuda.cuDevicePrimaryCtxReset(1)[0]),
    renewed=[int(cuda.cuDevicePrimaryCtxRetain(1)[0]), disable(other), enable(other)])
"""
    assert json.loads(run(three, PEERS + code)) == {
        "before": 705, "flags": 1, "itself": 201, "foreign": 217, "nobody": 201,
        "twice": [0, 704], "back": [705, 0], "after": [0, 705], "again": 0, "reset": 0,
        "renewed": [0, 705, 0],
    }  # fmt: skip


def test_bytes_go_from_one_gpu_to_the_other(three: Machine) -> None:
    code = """
from support.shim.cuda_arrays import *
data = os.urandom(1 << 20)
mine = check(cuda.cuMemAlloc(len(data)))
check(cuda.cuMemcpyHtoD(mine, data, len(data)))
stream = check(cuda.cuStreamCreate(0))
theirs = []
for context in (other, foreign):
    check(cuda.cuCtxSetCurrent(context))
    theirs.append(check(cuda.cuMemAlloc(len(data))))
check(cuda.cuCtxSetCurrent(one))
check(cuda.cuMemcpyPeer(theirs[0], other, mine, one, len(data)))
check(cuda.cuMemcpyPeerAsync(theirs[1], foreign, theirs[0], other, 1 << 19, stream))
made = box(cuda.CUDA_MEMCPY3D_PEER, int(theirs[1]) + (1 << 19), int(mine) + (1 << 19),
           (1 << 10, 1 << 9, 1), srcPitch=1 << 10, dstPitch=1 << 10, srcContext=one,
           dstContext=foreign)
check(cuda.cuMemcpy3DPeerAsync(made, stream))
check(cuda.cuStreamSynchronize(stream))
back = [bytearray(len(data)) for _ in range(2)]
for target, source in zip(back, theirs):
    check(cuda.cuMemcpyDtoH(target, source, len(data)))
wrong = int(cuda.cuMemcpyPeer(theirs[0], 0, mine, one, 4)[0])
say(same=[bytes(x) == data for x in back], wrong=wrong,
    beyond=int(cuda.cuMemcpyPeer(theirs[0], other, mine, one, len(data) + 1)[0]))
"""
    assert json.loads(run(three, PEERS + code)) == {
        "same": [True, True],
        "wrong": 201,
        "beyond": 1,
    }
