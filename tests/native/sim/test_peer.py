"""Two simulated GPUs of one machine and each other's memory."""

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
same([[check(cuda.cuDeviceCanAccessPeer(i, j)) for j in range(3)] for i in range(3)],
     [[0, 1, 0], [1, 0, 0], [0, 0, 0]])
same([link("ACCESS_SUPPORTED", 0, 1), link("ACCESS_SUPPORTED", 0, 2)], [1, 0])
same(link("CUDA_ARRAY_ACCESS_SUPPORTED", 0, 1), 1)
same(link("NATIVE_ATOMIC_SUPPORTED", 0, 1), 0)
same(link("ACCESS_SUPPORTED", 0, 0), -101)
"""
    run(three, PEERS + code)


def test_access_is_enabled_once_and_in_one_direction(three: Machine) -> None:
    code = """
def enable(peer, flags=0): return int(cuda.cuCtxEnablePeerAccess(peer, flags)[0])
def disable(peer): return int(cuda.cuCtxDisablePeerAccess(peer)[0])
same(disable(other), 705)
same(enable(other, 1), 1)
same(enable(one), 201)
same(enable(foreign), 217)
same(enable(0), 201)
same([enable(other), enable(other)], [0, 704])
same([cuda.cuCtxSetCurrent(other) and disable(one), enable(one)], [705, 0])
same([cuda.cuCtxSetCurrent(one) and disable(other), disable(other)], [0, 705])
same(enable(other), 0)
same(int(cuda.cuDevicePrimaryCtxReset(1)[0]), 0)
same([int(cuda.cuDevicePrimaryCtxRetain(1)[0]), disable(other), enable(other)], [0, 705, 0])
"""
    run(three, PEERS + code)


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
same(int(cuda.cuMemcpyPeer(theirs[0], 0, mine, one, 4)[0]), 201)
same([bytes(x) == data for x in back], [True, True])
same(int(cuda.cuMemcpyPeer(theirs[0], other, mine, one, len(data) + 1)[0]), 1)
"""
    run(three, PEERS + code)
