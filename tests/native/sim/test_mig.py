"""MIG instances of the simulated GPU, as CUDA and NVML show them."""

import json
from pathlib import Path

import pytest

from libvgpu.errors import SimulationError
from libvgpu.sim import PROFILES, Machine, acquire, parse_spec, release
from libvgpu.sim.faults import fail_allocations
from support.lines import expect, next_line, tell
from support.sim.nvml_programs import GPU_IS_LOST, NVML_PRELUDE, answers, lose, until_ready
from support.sim.programs import finish, run, said_in, start
from support.waiting import PATIENCE_S

GIB = 1 << 30
NOT_SUPPORTED, NOT_FOUND, INVALID_ARGUMENT = 3, 6, 2
H100 = PROFILES["h100-80g"]
HALF_BYTES = 40448 << 20  # 39.50 GiB, as nvidia-smi shows a 3g.40gb
CUDA = """
check(cuda.cuInit(0))
def text(uuid):
    digits = bytes(uuid.bytes).hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
seen = [[text(check(cuda.cuDeviceGetUuid(i))), check(cuda.cuDeviceTotalMem(i))]
        for i in range(check(cuda.cuDeviceGetCount()))]
"""


@pytest.fixture
def cut_machine(tmp_path: Path) -> Machine:
    """A GPU in two instances and a T4."""
    spec = parse_spec("h100-80g/mig=3g.40gb*2,t4")
    return Machine.create(spec.profiles, tmp_path / "machine", spec.driver_version or 13000)


def seen_by_cuda(machine: Machine, visible: str | None) -> list[list[object]]:
    env = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    seen: list[list[object]] = said_in(machine, CUDA + "print(json.dumps(seen))", env)
    return seen


def shown(machine: Machine, index: int) -> list[object]:
    """Returns how CUDA shows the device at that place of ``devices + instances``."""
    device = (machine.devices + machine.instances)[index]
    return [device.uuid[4:], device.profile.memory_bytes]


def test_instances_stand_behind_the_gpus(cut_machine: Machine) -> None:
    assert [device.profile.name for device in cut_machine.devices] == ["h100-80g", "t4"]
    assert [instance.gpu for instance in cut_machine.instances] == [0, 0]
    assert all(instance.uuid.startswith("MIG-") for instance in cut_machine.instances)
    assert cut_machine.instances[0].profile.memory_bytes == HALF_BYTES
    assert len(cut_machine.books()) == 4


def test_an_instance_is_where_its_gpu_is(tmp_path: Path) -> None:
    spec = parse_spec("t4*4,h100-80g/mig=3g.40gb*2,h100-80g/mig=1g.10gb*7")
    machine = Machine.create(spec.profiles, tmp_path / "machine", 13000)
    code = """
check(cuda.cuInit(0))
attribute = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID
print(check(cuda.cuDeviceGetAttribute(attribute, 0)))
"""

    env = {"CUDA_VISIBLE_DEVICES": machine.instances[-1].uuid}

    assert int(run(machine, code, env)) == 1, "the second four GPUs are at the second node"


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [2]),  # the first instance alone, and no GPU besides
        ("{0}", [2]),
        ("{1}", [3]),
        ("{1},{0}", [3]),
        ("0", [2]),
        ("1", [1]),  # the T4, where nothing of MIG is named
        ("1,{1}", [3]),
        ("{gpu}", [2]),
        ("MIG-00000000-no-such", []),
        ("{1},{1}", []),
    ],
)
def test_cuda_shows_one_instance_and_nothing_beside_it(
    cut_machine: Machine, visible: str | None, expected: list[int]
) -> None:
    first, second = (instance.uuid for instance in cut_machine.instances)
    named = visible and visible.format(first, second, gpu=cut_machine.devices[0].uuid)

    if expected:
        assert seen_by_cuda(cut_machine, named) == [shown(cut_machine, i) for i in expected]
    else:
        refused = "print(int(cuda.cuInit(0)[0]))"
        assert run(cut_machine, refused, {"CUDA_VISIBLE_DEVICES": str(named)}) == "100\n"


def test_the_runtime_may_show_single_instances(cut_machine: Machine) -> None:
    second = cut_machine.instances[1].uuid
    env = {"VGPU_SIM_VISIBLE": second}
    nvml = """
import pynvml as nvml
nvml.nvmlInit()
gpu = nvml.nvmlDeviceGetHandleByIndex(0)
print(json.dumps([seen, nvml.nvmlDeviceGetCount(),
                  nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0))]))
"""
    assert said_in(cut_machine, CUDA + nvml, env) == [[shown(cut_machine, 3)], 1, second]


def test_an_instance_has_its_own_memory_and_books(cut_machine: Machine) -> None:
    instance = cut_machine.instances[1]
    code = """
open_context()
free, total = check(cuda.cuMemGetInfo())
name = check(cuda.cuDeviceGetName(64, 0)).split(b"\\0")[0].decode()
sms = check(cuda.cuDeviceGetAttribute(
    cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0))
print(json.dumps([total, name, sms, int(cuda.cuMemAlloc(free + 1)[0]),
                  int(cuda.cuMemAlloc(free)[0])]), flush=True)
input()
"""
    program = start(cut_machine, code, {"CUDA_VISIBLE_DEVICES": instance.uuid})
    try:
        assert json.loads(next_line(program)) == [
            instance.profile.memory_bytes,
            f"{H100.product} MIG 3g.40gb",
            60,
            2,
            0,
        ]
        used = [books.memory_used_bytes for books in cut_machine.books()]
        assert used == [0, 0, 0, instance.profile.memory_bytes]
    finally:
        program.kill()
        program.wait(PATIENCE_S)
    assert cut_machine.books()[3].memory_used_bytes == 0


def test_nvml_tells_gpus_and_instances_apart(cut_machine: Machine) -> None:
    code = """
gpu, t4 = handles
first, second = (nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, i) for i in range(2))
print(json.dumps(dict(
    modes=[nvml.nvmlDeviceGetMigMode(gpu), refusal(nvml.nvmlDeviceGetMigMode, t4)],
    most=[nvml.nvmlDeviceGetMaxMigDeviceCount(each) for each in handles],
    instance=[bool(nvml.nvmlDeviceIsMigDeviceHandle(each)) for each in (gpu, first)],
    uuids=[nvml.nvmlDeviceGetUUID(each) for each in (first, second)],
    by_uuid=nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByUUID(nvml.nvmlDeviceGetUUID(second))),
    whole=nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(second)),
    numbers=[[nvml.nvmlDeviceGetGpuInstanceId(each), nvml.nvmlDeviceGetComputeInstanceId(each)]
             for each in (first, second)],
    name=nvml.nvmlDeviceGetName(first),
    totals=[nvml.nvmlDeviceGetMemoryInfo(each).total for each in (gpu, first)],
    refusals=[refusal(nvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, 2),
              refusal(nvml.nvmlDeviceGetMigDeviceHandleByIndex, t4, 0),
              refusal(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, gpu),
              refusal(nvml.nvmlDeviceGetUtilizationRates, first),
              refusal(nvml.nvmlDeviceGetMigMode, first),
              refusal(nvml.nvmlDeviceGetGpuInstanceId, gpu)])))
"""
    uuids = [instance.uuid for instance in cut_machine.instances]
    assert answers(cut_machine, code) == {
        "modes": [[1, 1], NOT_SUPPORTED], "most": [7, 0], "instance": [False, True],
        "uuids": uuids, "by_uuid": uuids[1], "whole": cut_machine.devices[0].uuid,
        "numbers": [[1, 0], [2, 0]], "name": f"{H100.product} MIG 3g.40gb",
        "totals": [H100.memory_bytes, HALF_BYTES],
        "refusals": [NOT_FOUND, NOT_FOUND, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_SUPPORTED,
                     NOT_SUPPORTED],
    }  # fmt: skip


def test_nvml_shows_what_is_used_by_instance_and_on_the_gpu(cut_machine: Machine) -> None:
    hold = """
open_context()
check(cuda.cuMemAlloc(1 << 30))
print("ready", flush=True)
input()
"""
    code = """
instances = [nvml.nvmlDeviceGetMigDeviceHandleByIndex(handles[0], i) for i in range(2)]
def about(device):
    return [nvml.nvmlDeviceGetMemoryInfo(device).used,
            [[p.pid, p.usedGpuMemory, p.gpuInstanceId, p.computeInstanceId]
             for p in nvml.nvmlDeviceGetComputeRunningProcesses_v3(device)]]
print(json.dumps([about(each) for each in (handles[0], *instances)]))
"""
    programs = [
        start(cut_machine, hold, {"CUDA_VISIBLE_DEVICES": instance.uuid})
        for instance in cut_machine.instances
    ]
    try:
        for program in programs:
            expect(program)
        each_bytes = GIB + H100.context_bytes
        processes = [[p.pid, each_bytes, i, 0] for i, p in enumerate(programs, 1)]
        assert answers(cut_machine, code) == [
            [2 * each_bytes, processes],
            *([each_bytes, [process]] for process in processes),
        ]
    finally:
        for program in programs:
            program.kill()
            program.wait(PATIENCE_S)


def test_an_instance_is_lost_with_its_gpu(cut_machine: Machine) -> None:
    code = """
gpu = handles[0]
instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0)
uuid = nvml.nvmlDeviceGetUUID(instance)
print("ready", flush=True)
input()
print(json.dumps([refusal(nvml.nvmlDeviceGetUUID, instance),
                  refusal(nvml.nvmlDeviceGetHandleByUUID, uuid)]), flush=True)
"""
    program = start(cut_machine, NVML_PRELUDE + code)
    until_ready(program)
    lose(cut_machine, 0)

    assert json.loads(finish(program, "\n")) == [GPU_IS_LOST, GPU_IS_LOST]


def test_an_instance_has_the_faults_of_its_gpu(cut_machine: Machine) -> None:
    code = """
open_context()
print("ready", flush=True)
input()
print(json.dumps([int(cuda.cuMemAlloc(1 << 20)[0]) for _ in range(2)]), flush=True)
input()
print(int(cuda.cuMemAlloc(1 << 20)[0]))
"""
    program = start(cut_machine, code, {"CUDA_VISIBLE_DEVICES": cut_machine.instances[1].uuid})
    until_ready(program)
    fail_allocations(cut_machine, 0, 1)
    tell(program)
    assert json.loads(next_line(program)) == [2, 0]
    lose(cut_machine, 0)

    assert finish(program, "\n") == "46\n", "the device is unavailable"


def test_a_named_machine_is_joined_by_the_same_instances_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    made = acquire(parse_spec("h100/mig=1g.10gb*2@lab"))
    joined = acquire(parse_spec("h100/mig=1g.10gb*2@lab"))
    assert [i.uuid for i in joined.instances] == [i.uuid for i in made.instances]
    for other in ("h100@lab", "h100/mig=1g.10gb*3@lab", "h100/mig=2g.20gb*2@lab"):
        with pytest.raises(SimulationError, match="other GPUs"):
            acquire(parse_spec(other))
    release(made)


def test_a_named_machine_is_joined_as_it_was_made_and_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    made = acquire(parse_spec("a100-40g@lab"))
    code = """
nvml.nvmlDeviceSetMigMode(handles[0], 1)
nvml.nvmlGpuInstanceCreateComputeInstance(nvml.nvmlDeviceCreateGpuInstance(handles[0], 9), 2)
print(json.dumps(1))
"""
    assert answers(made, code) == 1

    for spec in ("a100-40g@lab", "a100-40g/mig=3g.20gb@lab"):
        assert len(acquire(parse_spec(spec)).instances) == 1
    for other in ("a100-40g/mig@lab", "a100-40g/mig=4g.20gb@lab", "a100-80g@lab"):
        with pytest.raises(SimulationError, match=r"other GPUs: a100-40g/mig=3g\.20gb"):
            acquire(parse_spec(other))
