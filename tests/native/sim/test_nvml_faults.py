"""NVML of a simulated GPU that does not answer, or has no answer, on request."""

import json
from pathlib import Path

import pytest

from libvgpu.errors import UsageError
from libvgpu.sim import Machine, faults, parse_spec
from support.lines import next_line, tell
from support.sim.nvml_programs import NVML_PRELUDE, answers, until_ready
from support.sim.programs import finish, start

NOT_SUPPORTED = 3

#: Calls functions in threads, as they are named; says which have returned, and what.
CALLS = (
    NVML_PRELUDE
    + """
import threading
events = nvml.nvmlEventSetCreate()
nvml.nvmlDeviceRegisterEvents(handles[1], nvml.nvmlEventTypeXidCriticalError, events)
asked = {
    "memory 0": lambda: nvml.nvmlDeviceGetMemoryInfo(handles[0]).total,
    "memory 1": lambda: nvml.nvmlDeviceGetMemoryInfo(handles[1]).total,
    "memory 1 v2": lambda: nvml.nvmlDeviceGetMemoryInfo(handles[1], nvml.nvmlMemory_v2).total,
    "handle 1": lambda: str(nvml.nvmlDeviceGetHandleByIndex(1) and 1),
    "processes 1": lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handles[1]),
    "events": lambda: nvml.nvmlEventSetWait_v2(events, 1),
}
returned = {}
def call(name):
    try:
        returned[name] = asked[name]()
    except nvml.NVMLError as error:
        returned[name] = error.value
print("ready", flush=True)
sys.stdin.readline()
threads = [threading.Thread(target=call, args=[name], daemon=True) for name in asked]
for thread in threads: thread.start()
def wait(names):
    while returned.keys() < names: time.sleep(0.002)
    for _ in range(100): asked["memory 0"]()  # those that should hang might return meanwhile
    return sorted(returned)
"""
)
ALL = {"memory 0", "memory 1", "memory 1 v2", "handle 1", "processes 1", "events"}
TIMEOUT = 10


@pytest.mark.parametrize(
    ("function", "hanging"),
    [
        ("nvmlDeviceGetMemoryInfo", {"memory 1", "memory 1 v2"}),
        ("nvmlDeviceGetMemoryInfo_v2", {"memory 1 v2"}),
        ("nvmlDeviceGetComputeRunningProcesses", {"processes 1"}),
        ("nvmlEventSetWait", {"events"}),
        (faults.EVERY_FUNCTION, ALL - {"memory 0"}),
    ],
)
def test_a_function_hangs_for_one_gpu_until_that_is_cleared(
    tmp_path: Path, function: str, hanging: set[str]
) -> None:
    machine = Machine.create(parse_spec("t4*2").profiles, tmp_path / "m")
    code = f"""
say(first=wait({ALL - hanging!r}))
sys.stdin.readline()
wait({ALL!r})
say(after=returned)
"""
    program = start(machine, CALLS + code)
    until_ready(program)
    faults.set_nvml(machine, 1, function, faults.HANGS)
    tell(program)

    first = json.loads(next_line(program))["first"]
    faults.clear(machine, 1)
    after = json.loads(finish(program, "\n"))["after"]

    assert set(first) == ALL - hanging
    assert after["memory 1"] == after["memory 0"]
    assert (after["processes 1"], after["events"]) == ([], TIMEOUT)


def test_functions_that_a_gpu_does_not_support_are_refused_for_it_alone(tmp_path: Path) -> None:
    machine = Machine.create(parse_spec("t4*2").profiles, tmp_path / "m")
    for function in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetSerial"):
        faults.set_nvml(machine, 0, function, NOT_SUPPORTED)

    code = """
say(refused=[[refusal(ask, handle) for handle in handles] for ask in
             (nvml.nvmlDeviceGetMemoryInfo, nvml.nvmlDeviceGetSerial)])
"""
    said = answers(machine, code)

    assert [row[0] for row in said["refused"]] == [NOT_SUPPORTED] * 2
    assert [row[1][0] for row in said["refused"]] == ["granted"] * 2


def test_a_gpu_has_few_such_faults_and_the_last_of_a_function_counts(tmp_path: Path) -> None:
    machine = Machine.create(parse_spec("t4").profiles, tmp_path / "m")
    for number in range(faults.MOST_NVML_FAULTS):
        faults.set_nvml(machine, 0, f"nvmlDeviceGet{number}", NOT_SUPPORTED)
    faults.set_nvml(machine, 0, "nvmlDeviceGet0", faults.HANGS)

    with pytest.raises(UsageError, match="which is the most"):
        faults.set_nvml(machine, 0, "nvmlDeviceGetSerial", NOT_SUPPORTED)

    found = {each.function: each.answer for each in machine.device_faults(0).nvml}
    assert found["nvmlDeviceGet0"] == faults.HANGS
    faults.clear(machine)
    assert machine.device_faults(0).nvml == ()
