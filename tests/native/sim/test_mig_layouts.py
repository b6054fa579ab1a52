"""GPUs cut into instances of several kinds, as NVML and CUDA show them."""

from pathlib import Path

import pytest

from libvgpu.sim import PROFILES, Machine, parse_spec
from libvgpu.sim.mig import Placed
from libvgpu.sim.mig_parts import mig_devices
from support.sim.nvml_programs import answers
from support.sim.programs import said_in

NOT_SUPPORTED, NOT_FOUND, INVALID_ARGUMENT, NO_DEVICE = 3, 6, 2, 100
A100 = PROFILES["a100-40g"]
LIST = """
def parts(gpu):
    for i in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, i)
        except nvml.NVMLError_NotFound:
            return
def fields(structure):
    return {name: getattr(structure, name) for name, _ in structure._fields_ if name != "name"}
"""


def machine_of(spec: str, folder: Path) -> Machine:
    return Machine.create(parse_spec(spec).profiles, folder / "machine", 13000)


def test_a_mixed_layout_has_devices_by_id(tmp_path: Path) -> None:
    machine = machine_of("a100-40g/mig=3g.20gb+2g.10gb+1g.5gb+1g.5gb+me", tmp_path)
    code = """
print(json.dumps([[nvml.nvmlDeviceGetName(part), nvml.nvmlDeviceGetUUID(part),
                   nvml.nvmlDeviceGetGpuInstanceId(part), nvml.nvmlDeviceGetMemoryInfo(part).total,
                   nvml.nvmlDeviceGetAttributes_v2(part).multiprocessorCount]
                  for part in parts(handles[0])]))
"""
    said = answers(machine, LIST + code)

    assert [row[0].removeprefix(f"{A100.product} MIG ") for row in said] == [
        "3g.20gb",
        "2g.10gb",
        "1g.5gb",
        "1g.5gb+me",
    ]
    assert [row[1] for row in said] == [part.uuid for part in machine.instances]
    assert [row[2] for row in said] == [2, 3, 9, 10]
    assert [row[3] >> 20 for row in said] == [19968, 9856, 4864, 4864]
    assert [row[4] for row in said] == [42, 28, 14, 14]
    assert machine.mig_layout(0) == (
        Placed("2g.10gb", 0),
        Placed("1g.5gb", 2),
        Placed("1g.5gb+me", 3),
        Placed("3g.20gb", 4),
    )


@pytest.mark.parametrize("spec", ["a100-40g/mig=7g.40gb", "h200-141g/mig=1g.35gb*4"])
def test_devices_are_what_was_foretold(spec: str, tmp_path: Path) -> None:
    machine = machine_of(spec, tmp_path)
    (asked,) = parse_spec(spec).profiles

    foretold = mig_devices(asked)

    assert foretold
    for part, expected in zip(machine.instances, foretold, strict=True):
        assert part.profile.product == expected.product
        for field in ("memory_bytes", "sm_count", "l2_bytes", "memory_bytes_per_second"):
            assert getattr(part.profile, field) == getattr(expected, field)


def test_mig_mode_without_an_instance(tmp_path: Path) -> None:
    machine = machine_of("a100-40g/mig,a100-40g", tmp_path)
    code = """
print(json.dumps([[nvml.nvmlDeviceGetMigMode(gpu), len(list(parts(gpu)))] for gpu in handles]))
"""
    assert answers(machine, LIST + code) == [[[1, 1], 0], [[0, 0], 0]]
    assert (machine.instances, machine.mig_layout(0), machine.mig_layout(1)) == ((), (), None)
    look = """
print(json.dumps([int(cuda.cuInit(0)[0]), cuda.cuDeviceGetCount()[1]]))
"""
    only_cut = {"CUDA_VISIBLE_DEVICES": machine.devices[0].uuid}
    assert said_in(machine, look) == [0, 1], "the other GPU alone"
    assert said_in(machine, look, only_cut)[0] == NO_DEVICE


def test_an_instance_of_all_memory_has_number_zero(tmp_path: Path) -> None:
    machine = machine_of("h100-80g/mig=7g.80gb", tmp_path)
    code = """
import subprocess
child = subprocess.Popen([sys.executable, "-c", '''
from support.shim.cuda_client import *
check(driver.cuInit(0)); open_context(); print("ready", flush=True); input()
'''], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
child.stdout.readline()
(part,) = parts(handles[0])
(process,) = nvml.nvmlDeviceGetComputeRunningProcesses(part)
print(json.dumps([nvml.nvmlDeviceGetGpuInstanceId(part), process.gpuInstanceId,
                  process.computeInstanceId, process.pid == child.pid]))
child.communicate("")
"""
    assert answers(machine, LIST + code) == [0, 0, 0, True]


def test_the_table_of_a_gpu(tmp_path: Path) -> None:
    machine = machine_of("a100-40g/mig,a100-40g,t4", tmp_path)
    code = """
cut, whole, t4 = handles
def ids(gpu, version):
    found = {}
    for number in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            found[number] = nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, number, version).id
        except nvml.NVMLError_NotSupported:
            pass
    return found
def placements(gpu, id):
    count = ctypes.c_uint()
    nvml.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, id, None, ctypes.byref(count))
    array = (nvml.c_nvmlGpuInstancePlacement_t * count.value)()
    nvml.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, id, array, ctypes.byref(count))
    return [[each.start, each.size] for each in array]
info = nvml.nvmlDeviceGetGpuInstanceProfileInfo(cut, 7)
name = info.name.decode() if isinstance(info.name, bytes) else info.name
by_id = nvml.nvmlDeviceGetGpuInstanceProfileInfoByIdV(cut, 20)
print(json.dumps(dict(
    ids=[ids(cut, 1), ids(cut, 2), ids(whole, 1), ids(whole, 2), ids(t4, 1)],
    name=name, info=fields(info), by_id=fields(by_id) == fields(info),
    placements=[placements(whole, id) for id in (15, 14, 9, 0)],
    capacity=[nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(cut, id) for id in (19, 15, 14, 9, 0)],
    refusals=[refusal(nvml.nvmlDeviceGetGpuInstanceProfileInfo, cut, 18),
              refusal(placements, whole, 21), refusal(placements, t4, 19),
              refusal(nvml.nvmlDeviceGetGpuInstanceRemainingCapacity, whole, 19)])))
"""
    said = answers(machine, LIST + code)

    table = {"0": 19, "1": 14, "2": 9, "3": 5, "4": 0, "7": 20, "9": 15}
    assert said["ids"] == [table, table, table, {}, {}]
    assert said["name"] == "MIG 1g.5gb+me"
    assert said["by_id"] is True
    said["info"].pop("version")
    assert said["info"] == {
        "id": 20,
        "isP2pSupported": 0,
        "sliceCount": 1,
        "instanceCount": 1,
        "multiprocessorCount": 14,
        "copyEngineCount": 1,
        "decoderCount": 1,
        "encoderCount": 0,
        "jpegCount": 1,
        "ofaCount": 1,
        "memorySizeMB": 4864,
    }
    assert said["placements"] == [
        [[0, 2], [2, 2], [4, 2], [6, 2]],
        [[0, 2], [2, 2], [4, 2]],
        [[0, 4], [4, 4]],
        [[0, 8]],
    ]
    assert said["capacity"] == [7, 4, 3, 2, 1]
    assert said["refusals"] == [INVALID_ARGUMENT, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_SUPPORTED]


def test_handles_of_gpu_and_compute_instances(tmp_path: Path) -> None:
    machine = machine_of("a100-40g/mig=3g.20gb+1g.5gb+me", tmp_path)
    code = """
gpu = handles[0]
def of_profile(id):
    array, count = (nvml.c_nvmlGpuInstance_t * 7)(), ctypes.c_uint()
    nvml.nvmlDeviceGetGpuInstances(gpu, id, array, ctypes.byref(count))
    return list(array[:count.value])
def compute(instance, id):
    array, count = (nvml.c_nvmlComputeInstance_t * 7)(), ctypes.c_uint()
    nvml.nvmlGpuInstanceGetComputeInstances(instance, id, array, ctypes.byref(count))
    return list(array[:count.value])
def about(instance):
    info = nvml.nvmlGpuInstanceGetInfo(instance)
    return [info.id, info.profileId, info.placement.start, info.placement.size]
(big,) = of_profile(9)
(small,) = of_profile(20)
(of_big,) = compute(big, 2)
info = nvml.nvmlComputeInstanceGetInfo_v2(of_big)
profile = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(small, 0, 0)
text = profile.name.decode() if isinstance(profile.name, bytes) else profile.name
print(json.dumps(dict(
    counts=[len(of_profile(id)) for id in (19, 20, 9, 0)],
    about=[about(big), about(small), about(nvml.nvmlDeviceGetGpuInstanceById(gpu, 2))],
    compute=[info.id, info.profileId, info.placement.start, info.placement.size],
    smaller=len(compute(big, 0)), name=text,
    shared=[profile.id, profile.multiprocessorCount, profile.sharedDecoderCount],
    attributes=fields(nvml.nvmlDeviceGetAttributes_v2(list(parts(gpu))[0])),
    refusals=[refusal(nvml.nvmlDeviceGetGpuInstanceById, gpu, 1),
              refusal(nvml.nvmlDeviceGetAttributes_v2, gpu),
              refusal(nvml.nvmlGpuInstanceGetComputeInstanceById, big, 1),
              refusal(nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo, big, 0, 0)])))
"""
    assert answers(machine, LIST + code) == {
        "counts": [0, 1, 1, 0],
        "about": [[2, 9, 4, 4], [7, 20, 0, 1], [2, 9, 4, 4]],
        "compute": [0, 2, 0, 3],
        "smaller": 0,
        "name": "MIG 1g.5gb",
        "shared": [0, 14, 1],
        "attributes": {
            "multiprocessorCount": 42,
            "sharedCopyEngineCount": 3,
            "sharedDecoderCount": 2,
            "sharedEncoderCount": 0,
            "sharedJpegCount": 0,
            "sharedOfaCount": 0,
            "gpuInstanceSliceCount": 3,
            "computeInstanceSliceCount": 3,
            "memorySizeMB": 19968,
        },
        "refusals": [NOT_FOUND, NOT_SUPPORTED, NOT_FOUND, NOT_SUPPORTED],
    }


def test_the_first_version_of_a_uuid_is_of_the_gpu(tmp_path: Path) -> None:
    machine = machine_of("h100-80g/mig=1g.10gb*7", tmp_path)
    last = machine.instances[-1]
    code = """
check(cuda.cuInit(0))
library, room = ctypes.CDLL("libcuda.so.1"), ctypes.create_string_buffer(16)
said = []
for call in (library.cuDeviceGetUuid, library.cuDeviceGetUuid_v2):
    assert call(room, 0) == 0
    said.append(room.raw.hex())
print(json.dumps(said))
"""
    said = said_in(machine, code, {"CUDA_VISIBLE_DEVICES": last.uuid})

    assert said == [uuid[4:].replace("-", "") for uuid in (machine.devices[0].uuid, last.uuid)]
