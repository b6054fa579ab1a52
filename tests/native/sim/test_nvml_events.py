"""Events and faults in the simulated NVML: who is told, when, and what a lost GPU answers.

They are injected from here, as `vgpuctl` does it, and looked at from a program of its own.
"""

import json
import re
import time
from pathlib import Path

import pytest

from libvgpu.sim import PROFILES, Machine
from support.lines import next_line, tell
from support.shim.headers import NVML
from support.shim.symbols import exports
from support.sim.driver import library_of
from support.sim.nvml_programs import (
    ECC_DOUBLE,
    ECC_SINGLE,
    EVENT_PRELUDE,
    GPU_IS_LOST,
    NVML_PRELUDE,
    XID,
    lose,
    raise_event,
    until_ready,
)
from support.sim.programs import finish, run, start

pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")


@pytest.fixture
def two_gpus(tmp_path: Path) -> Machine:
    return Machine.create([PROFILES["a100-80g"]] * 2, tmp_path / "two")


# ---- events --------------------------------------------------------------------------------------


def test_events_reach_each_set_that_wants_them_since_it_wanted_them(two_gpus: Machine) -> None:
    code = """
one = registered((0, XID))
both = registered((0, XID | DOUBLE), (1, XID))
ready()
late = registered((0, XID))
nvml.nvmlDeviceRegisterEvents(handles[0], XID, both)  # again: what it has not read yet stays
nvml.nvmlDeviceRegisterEvents(handles[1], SINGLE, both)
ready()
def drain(events):
    found = []
    while (event := wait(events, 0)) is not None:
        found.append(event)
    return found
say(one=drain(one), both=drain(both), late=drain(late))
"""
    raise_event(two_gpus, 0, XID, 13)  # before anybody wanted any
    program = start(two_gpus, EVENT_PRELUDE + code)
    until_ready(program)
    raise_event(two_gpus, 0, XID, 31)
    raise_event(two_gpus, 0, ECC_DOUBLE, 5)
    raise_event(two_gpus, 1, XID, 48)
    raise_event(two_gpus, 1, ECC_SINGLE)
    tell(program)
    until_ready(program)
    raise_event(two_gpus, 0, XID, 79)
    raise_event(two_gpus, 1, ECC_SINGLE)

    said = json.loads(finish(program, "\n"))

    xid, single, double = 8, 1, 2
    assert said == {
        "one": [[0, xid, 31], [0, xid, 79]],
        "both": [[0, xid, 31], [0, double, 0], [0, xid, 79], [1, xid, 48], [1, single, 0]],
        "late": [[0, xid, 79]],
    }


def test_of_more_events_than_are_kept_the_newest_are_given(machine: Machine) -> None:
    code = """
events = registered((0, XID))
ready()
found = [wait(events, 0)[2] for _ in range(64)]
say(found=found, after=wait(events, 0))
"""
    program = start(machine, EVENT_PRELUDE + code)
    until_ready(program)
    for number in range(100):
        raise_event(machine, 0, XID, number)

    said = json.loads(finish(program, "\n"))

    assert said == {"found": list(range(36, 100)), "after": None}


def test_threads_that_wait_on_one_set_get_each_event_once(machine: Machine) -> None:
    code = """
import threading
events, found = registered((0, XID)), []
threads = [threading.Thread(target=lambda: found.append(wait(events)[2])) for _ in range(8)]
for thread in threads: thread.start()
print("ready", flush=True)
for thread in threads: thread.join()
say(found=sorted(found))
"""
    program = start(machine, EVENT_PRELUDE + code)
    until_ready(program)
    for number in range(8):
        raise_event(machine, 0, XID, number)

    assert json.loads(finish(program)) == {"found": list(range(8))}


@pytest.mark.virtual
def test_a_wait_ends_with_its_time_or_with_the_event(machine: Machine) -> None:
    code = """
events = registered((0, XID))
def elapsed(timeout_ms):
    start = time.monotonic()
    found = wait(events, timeout_ms)
    return found, time.monotonic() - start, time.monotonic()
say(over=elapsed(300)[:2], none=elapsed(0)[:2])
ready()
say(event=elapsed(20_000))
"""
    program = start(machine, EVENT_PRELUDE + code)
    first = json.loads(next_line(program))
    until_ready(program)
    tell(program)
    time.sleep(0.1)  # the wait is to be asleep; what is measured begins with the event
    raised = time.monotonic()
    raise_event(machine, 0, XID, 31)
    found, _, woken = json.loads(finish(program))["event"]

    assert first["over"][0] is None
    assert first["over"][1] == pytest.approx(0.3, abs=0.03)
    assert first["none"][1] < 0.01
    assert found == [0, 8, 31]
    assert woken - raised < 0.02


def test_an_old_wait_leaves_alone_what_an_old_structure_has_not(machine: Machine) -> None:
    code = """
library = ctypes.CDLL("libnvidia-ml.so.1")
def untouched(function, *arguments, data_bytes, last=()):
    buffer = ctypes.create_string_buffer(b"#" * 128, 128)
    assert function(*arguments, buffer, *last) == 0
    return buffer.raw[data_bytes:] == b"#" * (128 - data_bytes) and buffer.raw[:1] != b"#"
events = registered((0, XID))
ready()
say(wait=untouched(library.nvmlEventSetWait, events, data_bytes=24, last=(0,)),
    pci_1=untouched(library.nvmlDeviceGetPciInfo, handles[0], data_bytes=32),
    pci_2=untouched(library.nvmlDeviceGetPciInfo_v2, handles[0], data_bytes=36))
"""
    program = start(machine, EVENT_PRELUDE + code)
    until_ready(program)
    raise_event(machine, 0, XID, 31)

    assert json.loads(finish(program, "\n")) == {"wait": True, "pci_1": True, "pci_2": True}


# ---- faults --------------------------------------------------------------------------------------


def test_memory_errors_are_counted_on_their_gpu(two_gpus: Machine) -> None:
    for kind in (ECC_SINGLE, ECC_SINGLE, ECC_DOUBLE):
        raise_event(two_gpus, 1, kind)

    code = """
def counts(handle):
    return [nvml.nvmlDeviceGetTotalEccErrors(handle, kind, counter)
            for kind in (0, 1) for counter in (0, 1)]
fields = nvml.nvmlDeviceGetFieldValues(handles[1], [nvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL,
    nvml.NVML_FI_DEV_ECC_DBE_AGG_TOTAL, nvml.NVML_FI_DEV_RETIRED_SBE])
same(counts(handles[0]), [0, 0, 0, 0])
same(counts(handles[1]), [2, 2, 1, 1])
same(nvml.nvmlDeviceGetMemoryErrorCounter(handles[1], 0, 0, nvml.NVML_MEMORY_LOCATION_DRAM), 2)
same(nvml.nvmlDeviceGetMemoryErrorCounter(handles[1], 0, 0, nvml.NVML_MEMORY_LOCATION_L2_CACHE), 0)
same([f.value.ullVal for f in fields], [2, 1, 0])
same([f.nvmlReturn for f in fields], [0, 0, 3])
"""
    run(two_gpus, NVML_PRELUDE + code)


@pytest.mark.skipif(NVML.path is None, reason=f"no {NVML.header}: install {NVML.package}")
def test_a_lost_gpu_answers_every_call_that_it_is_lost(two_gpus: Machine) -> None:
    assert NVML.path is not None
    there = exports(library_of(two_gpus, "libnvidia-ml.so.1"))
    calls = sorted(
        there & set(re.findall(r"DECLDIR (nvml\w+)\s*\(nvmlDevice_t ", NVML.path.read_text()))
    )
    assert len(calls) > 200
    code = f"""
library = ctypes.CDLL("libnvidia-ml.so.1")
ready()
buffers = [ctypes.create_string_buffer(4096) for _ in range(6)]
say(lost={{name: library[name](handles[0], *buffers) for name in {calls}}},
    name=nvml.nvmlDeviceGetName(handles[1]), count=nvml.nvmlDeviceGetCount(),
    by_index=refusal(nvml.nvmlDeviceGetHandleByIndex, 0),
    by_uuid=refusal(nvml.nvmlDeviceGetHandleByUUID, "{two_gpus.devices[0].uuid}"))
"""
    program = start(two_gpus, EVENT_PRELUDE + code)
    until_ready(program)
    lose(two_gpus, 0)

    said = json.loads(finish(program, "\n"))

    assert {name: code for name, code in said["lost"].items() if code != GPU_IS_LOST} == {}
    assert (said["name"], said["count"]) == ("NVIDIA A100-SXM4-80GB", 2)
    assert (said["by_index"], said["by_uuid"]) == (GPU_IS_LOST, GPU_IS_LOST)


def test_a_wait_gives_a_lost_gpus_events_before_it_says_that_it_is_lost(two_gpus: Machine) -> None:
    code = """
events = registered((0, XID), (1, XID))
ready()
say(first=wait(events, 0), second=refusal(nvml.nvmlEventSetWait_v2, events, 0))
"""
    program = start(two_gpus, EVENT_PRELUDE + code)
    until_ready(program)
    raise_event(two_gpus, 1, XID, 79)
    lose(two_gpus, 1)

    assert json.loads(finish(program, "\n")) == {"first": [1, 8, 79], "second": GPU_IS_LOST}
