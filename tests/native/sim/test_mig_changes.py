"""Changing what a GPU is cut into while the machine runs, as a tool does it by NVML."""

import json
import subprocess
from pathlib import Path

import pytest

from libvgpu.sim import Machine, parse_spec
from libvgpu.sim.mig import Placed
from support.lines import expect, next_line, tell
from support.sim.nvml_programs import NVML_PRELUDE, answers
from support.sim.programs import finish, run, start
from support.waiting import PATIENCE_S, wait_until

NOT_SUPPORTED, INVALID_ARGUMENT, IN_USE, INSUFFICIENT_RESOURCES = 3, 2, 19, 23
DEVICE_UNAVAILABLE, NO_DEVICE = 46, 100
TOOLS = """
gpu = handles[0]
def make(id, placement=None):
    if placement is None:
        instance = nvml.nvmlDeviceCreateGpuInstance(gpu, id)
    else:
        where = nvml.c_nvmlGpuInstancePlacement_t(*placement)
        instance = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, id, ctypes.byref(where))
    return instance
def number(instance): return nvml.nvmlGpuInstanceGetInfo(instance).id
def compute(instance, id): return nvml.nvmlGpuInstanceCreateComputeInstance(instance, id)
def uuids():
    found = []
    for i in range(7):
        try:
            found.append(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, i)))
        except nvml.NVMLError_NotFound:
            break
    return found
"""
HOLD = """
check(cuda.cuInit(0))
open_context()
print("ready", flush=True)
sys.stdin.readline()
print(int(cuda.cuMemAlloc(1 << 20)[0]))
"""


def machine_of(spec: str, folder: Path) -> Machine:
    return Machine.create(parse_spec(spec).profiles, folder / "machine", 13000)


def holding(machine: Machine, uuid: str) -> subprocess.Popen[str]:
    """Starts a program with a context on one device."""
    program = start(machine, HOLD, {"CUDA_VISIBLE_DEVICES": uuid})
    expect(program)
    return program


def test_a_layout_is_made_and_used_and_ended(tmp_path: Path) -> None:
    machine = machine_of("a100-40g", tmp_path)
    code = """
status = nvml.nvmlDeviceSetMigMode(gpu, 1)
big = make(9)
before = uuids()
compute(big, 2)
small = make(19, (2, 1))
compute(small, 0)
print(json.dumps([status, nvml.nvmlDeviceGetMigMode(gpu), before, [number(big), number(small)],
                  uuids()]))
"""
    status, mode, before, numbers, after = answers(machine, TOOLS + code)

    assert (status, mode, before, numbers) == (0, [1, 1], [], [2, 9])
    assert after == [part.uuid for part in machine.instances]
    assert machine.mig_layout(0) == (Placed("1g.5gb", 2), Placed("3g.20gb", 4))
    total = "check(cuda.cuInit(0)); print(check(cuda.cuDeviceTotalMem(0)))"
    assert run(machine, total, {"CUDA_VISIBLE_DEVICES": after[1]}) == f"{4864 << 20}\n"
    end = """
for id, in_it in ((9, 2), (19, 0)):
    array, count = (nvml.c_nvmlGpuInstance_t * 7)(), ctypes.c_uint()
    nvml.nvmlDeviceGetGpuInstances(gpu, id, array, ctypes.byref(count))
    for instance in array[:count.value]:
        assert refusal(nvml.nvmlGpuInstanceDestroy, instance) == nvml.NVML_ERROR_IN_USE
        nvml.nvmlComputeInstanceDestroy(nvml.nvmlGpuInstanceGetComputeInstanceById(instance, 0))
        nvml.nvmlGpuInstanceDestroy(instance)
        assert refusal(nvml.nvmlGpuInstanceGetInfo, instance) == nvml.NVML_ERROR_INVALID_ARGUMENT
print(json.dumps([uuids(), nvml.nvmlDeviceSetMigMode(gpu, 0), nvml.nvmlDeviceGetMigMode(gpu)]))
"""
    assert answers(machine, TOOLS + end) == [[], 0, [0, 0]]
    whole = "check(cuda.cuInit(0)); open_context(); print(check(cuda.cuDeviceTotalMem(0)))"
    assert run(machine, whole) == f"{machine.devices[0].profile.memory_bytes}\n"


def test_the_driver_refuses_what_has_no_room(tmp_path: Path) -> None:
    machine = machine_of("a100-40g/mig,a100-40g,t4", tmp_path)
    code = """
numbers = [number(make(id)) for id in (19, 19, 14)]
last = refusal(make, 9)
left = [nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, id) for id in (19, 14, 9)]
taken = refusal(make, 19, (6, 1))
nowhere = [refusal(make, 14, (1, 2)), refusal(make, 14, (2, 1)), refusal(make, 21)]
one = make(20)
again = refusal(make, 20)
compute(one, 0)
twice = refusal(compute, one, 0)
part = refusal(compute, nvml.nvmlDeviceGetGpuInstanceById(gpu, 3), 0)
off = [refusal(nvml.nvmlDeviceCreateGpuInstance, each, 19) for each in handles[1:]]
off.append(refusal(nvml.nvmlDeviceSetMigMode, handles[2], 1))
print(json.dumps([numbers, last, left, taken, nowhere, again, twice, part, off]))
"""
    assert answers(machine, TOOLS + code) == [
        [13, 11, 3],
        INSUFFICIENT_RESOURCES,  # as the user guide shows it for this order
        [3, 1, 0],
        INSUFFICIENT_RESOURCES,
        [INVALID_ARGUMENT] * 3,
        INSUFFICIENT_RESOURCES,
        INSUFFICIENT_RESOURCES,
        NOT_SUPPORTED,
        [NOT_SUPPORTED] * 3,
    ]


def test_a_process_on_the_gpu_keeps_it_whole(tmp_path: Path) -> None:
    machine = machine_of("a100-40g", tmp_path)
    ask = "print(json.dumps([nvml.nvmlDeviceSetMigMode(gpu, 1), nvml.nvmlDeviceGetMigMode(gpu)]))"
    program = holding(machine, machine.devices[0].uuid)
    try:
        assert answers(machine, TOOLS + ask) == [IN_USE, [0, 1]]
        assert finish(program, "\n") == "0\n", "it goes on"
    finally:
        program.kill()
    assert answers(machine, TOOLS + ask) == [0, [1, 1]]


def test_a_process_on_an_instance_keeps_it(tmp_path: Path) -> None:
    machine = machine_of("a100-40g/mig=3g.20gb*2", tmp_path)
    first, second = machine.instances
    code = """
instance = nvml.nvmlDeviceGetGpuInstanceById(gpu, 1)
held = nvml.nvmlGpuInstanceGetComputeInstanceById(instance, 0)
idle = nvml.nvmlGpuInstanceGetComputeInstanceById(nvml.nvmlDeviceGetGpuInstanceById(gpu, 2), 0)
said = [refusal(nvml.nvmlComputeInstanceDestroy, held), nvml.nvmlDeviceSetMigMode(gpu, 0),
        nvml.nvmlDeviceGetMigMode(gpu), uuids()]
nvml.nvmlComputeInstanceDestroy(idle)
print(json.dumps([*said, uuids()]))
"""
    program = holding(machine, first.uuid)
    try:
        said = answers(machine, TOOLS + code)
        assert said == [IN_USE, IN_USE, [1, 0], [first.uuid, second.uuid], [first.uuid]]
        assert finish(program, "\n") == "0\n", "it goes on"
    finally:
        program.kill()
    off = "print(json.dumps([nvml.nvmlDeviceSetMigMode(gpu, 0), uuids()]))"
    assert answers(machine, TOOLS + off) == [0, []], "the mode takes the instances with it"


def test_who_was_killed_holds_nothing(tmp_path: Path) -> None:
    machine = machine_of("a100-40g/mig=7g.40gb", tmp_path)
    program = holding(machine, machine.instances[0].uuid)
    program.kill()
    program.wait(PATIENCE_S)
    code = "print(json.dumps([nvml.nvmlDeviceSetMigMode(gpu, 0), nvml.nvmlDeviceGetMigMode(gpu)]))"

    assert answers(machine, TOOLS + code) == [0, [0, 0]]


@pytest.mark.parametrize("again", [False, True])
def test_an_instance_that_went_since_cuinit_takes_no_context(tmp_path: Path, again: bool) -> None:
    machine = machine_of("a100-40g/mig=3g.20gb", tmp_path)
    code = """
check(cuda.cuInit(0))
print("ready", flush=True)
sys.stdin.readline()
print(int(cuda.cuDevicePrimaryCtxRetain(0)[0]))
"""
    change = f"""
instance = nvml.nvmlDeviceGetGpuInstanceById(gpu, 2)
nvml.nvmlComputeInstanceDestroy(nvml.nvmlGpuInstanceGetComputeInstanceById(instance, 0))
if {again}:
    compute(instance, 2)
print(json.dumps(len(uuids())))
"""
    program = start(machine, code)
    try:
        expect(program)
        assert answers(machine, TOOLS + change) == int(again)
        assert finish(program, "\n") == f"{DEVICE_UNAVAILABLE}\n"
    finally:
        program.kill()
    assert int(run(machine, "print(int(cuda.cuInit(0)[0]))")) == (0 if again else NO_DEVICE)


def test_a_new_instance_has_empty_books(tmp_path: Path) -> None:
    machine = machine_of("a100-40g/mig=3g.20gb", tmp_path)
    work = """
open_context()
check(cuda.cuMemAlloc(1 << 30))
spinner = Spinner(20_000_000)
spinner.launch()
spinner.wait()
"""
    run(machine, work)
    before = machine.books()[1]
    assert before.busy_ns > 0
    change = """
instance = nvml.nvmlDeviceGetGpuInstanceById(gpu, 2)
nvml.nvmlComputeInstanceDestroy(nvml.nvmlGpuInstanceGetComputeInstanceById(instance, 0))
compute(instance, 2)
print(json.dumps(uuids()))
"""
    (uuid,) = answers(machine, TOOLS + change)

    after = machine.books()[1]
    assert (after.uuid, after.busy_ns, after.memory_peak_bytes, after.clients) == (uuid, 0, 0, ())
    assert uuid != before.uuid
    run(machine, work)
    assert before.busy_ns // 2 < machine.books()[1].busy_ns < before.busy_ns * 2


def test_makers_side_by_side_keep_what_is_theirs(tmp_path: Path) -> None:
    machine = machine_of("a100-40g/mig", tmp_path)
    code = """
print("ready", flush=True)
sys.stdin.readline()
for _ in range(150):
    instance = make(19)
    made = compute(instance, 0)
    nvml.nvmlComputeInstanceDestroy(made)
    nvml.nvmlGpuInstanceDestroy(instance)
print("ready", flush=True)
sys.stdin.readline()
mine = []
while True:
    try:
        instance = make(19)
    except nvml.NVMLError_InsufficientResources:
        break
    compute(instance, 0)
    mine.append(number(instance))
print(json.dumps(mine))
"""
    makers = [start(machine, NVML_PRELUDE + TOOLS + code) for _ in range(4)]
    try:
        for _ in range(2):
            for maker in makers:
                expect(maker)
            for maker in makers:
                tell(maker)
        made = [number for maker in makers for number in json.loads(finish(maker))]
    finally:
        for maker in makers:
            maker.kill()

    assert sorted(made) == [7, 8, 9, 10, 11, 12, 13]
    assert len({part.uuid for part in machine.instances}) == 7


def test_an_instance_and_a_process_never_miss_each_other(tmp_path: Path) -> None:
    """A process that got its context keeps its instance, and else gets none."""
    machine = machine_of("a100-40g/mig=7g.40gb", tmp_path)
    user = """
check(cuda.cuInit(0))
print("ready", flush=True)
sys.stdin.readline()
got = int(cuda.cuDevicePrimaryCtxRetain(0)[0])
print(got, flush=True)
sys.stdin.readline()
if got == 0:
    check(cuda.cuCtxSetCurrent(check(cuda.cuDevicePrimaryCtxRetain(0))))
    check(cuda.cuMemAlloc(1 << 20))
"""
    remover = """
instance = nvml.nvmlDeviceGetGpuInstanceById(gpu, 0)
held = nvml.nvmlGpuInstanceGetComputeInstanceById(instance, 0)
print("ready", flush=True)
sys.stdin.readline()
print(refusal(nvml.nvmlComputeInstanceDestroy, held) == nvml.NVML_ERROR_IN_USE, flush=True)
sys.stdin.readline()
"""
    restore = "compute(nvml.nvmlDeviceGetGpuInstanceById(gpu, 0), 4); print(json.dumps(1))"
    for _ in range(8):
        pair = [start(machine, user), start(machine, NVML_PRELUDE + TOOLS + remover)]
        try:
            for program in pair:
                expect(program)
            for program in pair:
                tell(program)
            got, refused = (next_line(p) for p in pair)
            assert (got, refused) in (("0", "True"), (str(DEVICE_UNAVAILABLE), "False"))
            for program in pair:
                finish(program, "\n")
        finally:
            for program in pair:
                program.kill()
        if refused == "False":
            answers(machine, TOOLS + restore)


def test_a_changer_that_is_killed_holds_up_nobody(tmp_path: Path) -> None:
    machine = machine_of("a100-40g/mig", tmp_path)
    code = """
print("ready", flush=True)
while True:
    nvml.nvmlGpuInstanceDestroy(make(19))
"""
    for _ in range(5):
        program = start(machine, NVML_PRELUDE + TOOLS + code)
        expect(program)
        program.kill()
        program.wait(PATIENCE_S)
    made = """
while nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, 19):
    make(19)
print(json.dumps(nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, 19)))
"""
    assert answers(machine, TOOLS + made) == 0
    layout = machine.mig_layout(0)
    assert layout is not None
    assert len(layout) == 7


def test_a_listener_sees_the_change(tmp_path: Path) -> None:
    machine = machine_of("a100-40g/mig", tmp_path)
    code = """
print("ready", flush=True)
for line in sys.stdin:
    print(json.dumps(uuids()), flush=True)
"""
    program = start(machine, NVML_PRELUDE + TOOLS + code)
    try:
        expect(program)

        def seen() -> list[str]:
            tell(program)
            found: list[str] = json.loads(next_line(program))
            return found

        assert seen() == []
        made = answers(machine, TOOLS + "compute(make(0), 4); print(json.dumps(uuids()))")
        wait_until(lambda: seen() == made)
        assert len(made) == 1
    finally:
        program.kill()
        program.wait(PATIENCE_S)
