"""NVML on a simulated machine, through nvidia-ml-py: books, events, faults, how GPUs are connected.

What is in NVML for every process at once is injected from here, as `vgpuctl` does it, and looked at
from a program of its own.
"""

import json
import re
import subprocess
import time
from pathlib import Path

import pytest

from libvgpu._native import ffi, lib
from libvgpu.sim import PROFILES, Machine
from support import ROOT
from support.headers import NVML
from support.sim_programs import busy, finish, run, start

pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")

XID, ECC_SINGLE, ECC_DOUBLE = 1, 2, 3
GPU_IS_LOST = 15
WINDOW_US = 1e6 / 6

NVML_PRELUDE = """
import pynvml as nvml
nvml.nvmlInit()
handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
def refusal(function, *arguments):
    try:
        return ["granted", str(function(*arguments))]
    except nvml.NVMLError as error:
        return error.value
"""
EVENT_PRELUDE = (
    NVML_PRELUDE
    + """
def wait(events, timeout_ms=20_000):
    try:
        data = nvml.nvmlEventSetWait_v2(events, timeout_ms)
    except nvml.NVMLError_Timeout:
        return None
    device = [h.value for h in map(lambda h: ctypes.cast(h, ctypes.c_void_p), handles)].index(
        ctypes.cast(data.device, ctypes.c_void_p).value)
    return [device, data.eventType, data.eventData]
def registered(*wanted):
    events = nvml.nvmlEventSetCreate()
    for device, types in wanted:
        nvml.nvmlDeviceRegisterEvents(handles[device], types, events)
    return events
def ready(): print("ready", flush=True); sys.stdin.readline()
XID, SINGLE, DOUBLE = (nvml.nvmlEventTypeXidCriticalError, nvml.nvmlEventTypeSingleBitEccError,
                       nvml.nvmlEventTypeDoubleBitEccError)
"""
)


@pytest.fixture
def two_gpus(tmp_path: Path) -> Machine:
    return Machine.create([PROFILES["a100-80g"]] * 2, tmp_path / "two")


def raise_event(machine: Machine, device: int, kind: int, data: int = 0) -> None:
    assert lib.sim_machine_raise_event(machine._native, device, kind, data) == 0


def lose(machine: Machine, device: int) -> None:
    faults = ffi.new("struct sim_device_faults *", {"lost": 1})
    assert lib.sim_machine_write_device_faults(machine._native, device, faults) == 0


def until_ready(program: subprocess.Popen[str]) -> None:
    assert program.stdout
    assert program.stdout.readline() == "ready\n"


def answers(machine: Machine, code: str) -> dict[str, object]:
    said: dict[str, object] = json.loads(run(machine, NVML_PRELUDE + code))
    return said


# ---- versions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cuda", "driver"),
    [(11080, "520.61.05"), (12040, "550.54.14"), (12080, "570.86.10"), (13000, "580.65.06")],
)
def test_the_driver_is_the_one_that_brought_the_machines_cuda(
    tmp_path: Path, cuda: int, driver: str
) -> None:
    machine = Machine.create([PROFILES["t4"]], tmp_path / "m", driver_version=cuda)

    said = answers(
        machine,
        """
say(driver=nvml.nvmlSystemGetDriverVersion(), nvml=nvml.nvmlSystemGetNVMLVersion(),
    cuda=nvml.nvmlSystemGetCudaDriverVersion_v2(), before=(nvml.nvmlShutdown(),
    nvml.nvmlSystemGetCudaDriverVersion())[1])
""",
    )

    assert said == {
        "driver": driver, "nvml": f"{cuda // 1000}.{driver}", "cuda": cuda, "before": cuda,
    }  # fmt: skip


# ---- events --------------------------------------------------------------------------------------


def test_events_reach_each_set_that_wants_them_since_it_wanted_them(two_gpus: Machine) -> None:
    code = """
one = registered((0, XID))
both = registered((0, XID | DOUBLE), (1, XID))
ready()
late = registered((0, XID))
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
    raise_event(two_gpus, 1, ECC_SINGLE)
    raise_event(two_gpus, 1, XID, 48)
    assert program.stdin
    program.stdin.write("\n")
    program.stdin.flush()
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


@pytest.mark.timing
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
    assert program.stdout
    first = json.loads(program.stdout.readline())
    until_ready(program)
    assert program.stdin
    program.stdin.write("\n")
    program.stdin.flush()
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

    said = answers(
        two_gpus,
        """
def counts(handle):
    return [nvml.nvmlDeviceGetTotalEccErrors(handle, kind, counter)
            for kind in (0, 1) for counter in (0, 1)]
fields = nvml.nvmlDeviceGetFieldValues(handles[1], [nvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL,
    nvml.NVML_FI_DEV_ECC_DBE_AGG_TOTAL, nvml.NVML_FI_DEV_RETIRED_SBE])
say(first=counts(handles[0]), second=counts(handles[1]),
    dram=nvml.nvmlDeviceGetMemoryErrorCounter(handles[1], 0, 0, nvml.NVML_MEMORY_LOCATION_DRAM),
    l2=nvml.nvmlDeviceGetMemoryErrorCounter(handles[1], 0, 0, nvml.NVML_MEMORY_LOCATION_L2_CACHE),
    fields=[f.value.ullVal for f in fields], states=[f.nvmlReturn for f in fields])
""",
    )

    assert said == {
        "first": [0, 0, 0, 0], "second": [2, 2, 1, 1], "dram": 2, "l2": 0,
        "fields": [2, 1, 0], "states": [0, 0, 3],
    }  # fmt: skip


@pytest.mark.skipif(NVML.path is None, reason=f"no {NVML.header}: install {NVML.package}")
def test_a_lost_gpu_answers_every_call_that_it_is_lost(two_gpus: Machine) -> None:
    assert NVML.path is not None
    table = set(re.findall(r"\((nvml\w+)\)", (ROOT / "libvgpu/sim/nvml/entries.def").read_text()))
    calls = sorted(
        table & set(re.findall(r"DECLDIR (nvml\w+)\s*\(nvmlDevice_t ", NVML.path.read_text()))
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


# ---- the sampling window -------------------------------------------------------------------------


def test_a_sample_is_given_once_and_says_when_its_window_ended(machine: Machine) -> None:
    code = """
def newest(since):
    try:
        return [[s.pid, s.timeStamp, s.smUtil]
                for s in nvml.nvmlDeviceGetProcessUtilization(handles[0], since)]
    except nvml.NVMLError_NotFound:
        return []
deadline, ends, pids = time.monotonic() + 20, [], set()
while len(ends) < 4 and time.monotonic() < deadline:
    for pid, at_us, _ in newest(ends[-1] if ends else 0):
        ends.append(at_us); pids.add(pid)
_, device_samples = nvml.nvmlDeviceGetSamples(handles[0], nvml.NVML_GPU_UTILIZATION_SAMPLES, 0)
seen = device_samples[-1].timeStamp
busy = {"power": nvml.nvmlDeviceGetPowerUsage(handles[0]),
        "state": nvml.nvmlDeviceGetPerformanceState(handles[0]),
        "reasons": nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handles[0]),
        "mhz": nvml.nvmlDeviceGetClockInfo(handles[0], nvml.NVML_CLOCK_SM)}
infos = nvml.nvmlDeviceGetProcessesUtilizationInfo(handles[0], 0)
say(ends=ends, pids=list(pids), seen=seen, now_us=time.time() * 1e6, busy=busy,
    infos=[[i.pid, i.smUtil > 0] for i in infos])
"""
    worker = start(machine, busy(1_000_000))
    try:
        until_ready(worker)
        said = json.loads(run(machine, NVML_PRELUDE + code))
    finally:
        worker.kill()
        worker.wait()

    assert said["pids"] == [worker.pid]
    assert len(said["ends"]) == 4
    for earlier, later in zip(said["ends"], said["ends"][1:], strict=False):
        windows = (later - earlier) / WINDOW_US
        assert windows >= 1 - 1e-4
        assert windows == pytest.approx(round(windows), abs=1e-4)
    assert 0 <= said["now_us"] - said["ends"][-1] < 2e6
    assert said["seen"] >= said["ends"][-1]
    assert said["infos"] == [[worker.pid, True]]
    assert said["busy"] == {"power": said["busy"]["power"], "state": 0, "reasons": 0, "mhz": 1980}
    assert said["busy"]["power"] > 600_000


def test_an_idle_gpu_says_so(machine: Machine) -> None:
    said = answers(
        machine,
        """
say(power=nvml.nvmlDeviceGetPowerUsage(handles[0]),
    state=nvml.nvmlDeviceGetPerformanceState(handles[0]),
    reasons=nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handles[0]),
    mhz=nvml.nvmlDeviceGetClockInfo(handles[0], nvml.NVML_CLOCK_SM),
    rate=nvml.nvmlDeviceGetUtilizationRates(handles[0]).gpu,
    vbios=nvml.nvmlDeviceGetVbiosVersion(handles[0]),
    processes=refusal(nvml.nvmlDeviceGetProcessUtilization, handles[0], 0))
""",
    )

    assert said == {
        "power": 100_000, "state": 8, "reasons": 1, "mhz": 345, "rate": 0, "vbios": "simulated",
        "processes": 6,
    }  # fmt: skip


def test_every_version_lists_the_same_processes(costly_machine: Machine) -> None:
    code = """
open_context()
library = ctypes.CDLL("libnvidia-ml.so.1")
def listed(name, bytes_each):
    count, buffer = ctypes.c_uint(0), ctypes.create_string_buffer(1024)
    short = library[name](handles[0], ctypes.byref(count), None)
    needed = count.value
    assert library[name](handles[0], ctypes.byref(count), buffer) == 0
    first = ctypes.c_uint.from_buffer(buffer, 0).value
    return [short, needed, first, ctypes.c_ulonglong.from_buffer(buffer, 8).value]
compute = "nvmlDeviceGetComputeRunningProcesses"
say(lists=[listed(compute + version, 0) for version in ("", "_v2", "_v3")], pid=os.getpid(),
    graphics=nvml.nvmlDeviceGetGraphicsRunningProcesses(handles[0]),
    mps=nvml.nvmlDeviceGetMPSComputeRunningProcesses(handles[0]),
    name=nvml.nvmlSystemGetProcessName(os.getpid()),
    nobody=refusal(nvml.nvmlSystemGetProcessName, 2**31 - 1))
"""
    said = json.loads(run(costly_machine, NVML_PRELUDE + code))

    insufficient_size, not_found = 7, 6
    context_bytes = PROFILES["h100-80g"].context_bytes
    assert said["lists"] == [[insufficient_size, 1, said["pid"], context_bytes]] * 3
    assert (said["graphics"], said["mps"], said["nobody"]) == ([], [], not_found)
    assert "python" in said["name"]


# ---- how GPUs are connected ----------------------------------------------------------------------

LINKS = """
def link_ends(handle, links):
    ends = []
    for link in range(links):
        if nvml.nvmlDeviceGetNvLinkState(handle, link):
            ends.append([nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link),
                         nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).bus])
    return ends
say(buses=[nvml.nvmlDeviceGetPciInfo(h).bus for h in handles],
    ends=[link_ends(h, LINKS_A_GPU) for h in handles],
    beyond=refusal(nvml.nvmlDeviceGetNvLinkState, handles[0], LINKS_A_GPU),
    count=nvml.nvmlDeviceGetFieldValues(handles[0], [nvml.NVML_FI_DEV_NVLINK_LINK_COUNT])[0]
        .value.uiVal)
"""


@pytest.mark.parametrize(
    ("profile", "gpus", "links"), [("a100-80g", 2, 12), ("a100-40g", 4, 12), ("h100-80g", 3, 18)]
)
def test_a_few_sxm_gpus_are_linked_pair_by_pair(
    tmp_path: Path, profile: str, gpus: int, links: int
) -> None:
    machine = Machine.create([PROFILES[profile]] * gpus, tmp_path / "m")

    said = json.loads(run(machine, NVML_PRELUDE + LINKS.replace("LINKS_A_GPU", str(links))))

    assert (said["count"], said["beyond"]) == (links, 2)
    for own_bus, ends in zip(said["buses"], said["ends"], strict=True):
        others = [bus for bus in said["buses"] if bus != own_bus]
        assert sorted(ends) == sorted([[0, bus] for bus in others] * (links // len(others)))


def test_many_sxm_gpus_are_linked_to_switches(tmp_path: Path) -> None:
    machine = Machine.create([PROFILES["h100-80g"]] * 8, tmp_path / "m")

    said = json.loads(run(machine, NVML_PRELUDE + LINKS.replace("LINKS_A_GPU", "18")))

    switch = 2
    assert [len(ends) for ends in said["ends"]] == [18] * 8
    assert {kind for ends in said["ends"] for kind, _ in ends} == {switch}
    assert {bus for ends in said["ends"] for _, bus in ends}.isdisjoint(said["buses"])


def test_a_gpu_alone_or_without_nvlink_has_no_links(tmp_path: Path) -> None:
    machine = Machine.create([PROFILES["h100-80g"], PROFILES["t4"]], tmp_path / "m")

    said = answers(
        machine,
        """
say(alone=[nvml.nvmlDeviceGetNvLinkState(handles[0], link) for link in range(18)],
    remote=refusal(nvml.nvmlDeviceGetNvLinkRemotePciInfo, handles[0], 0),
    t4=refusal(nvml.nvmlDeviceGetNvLinkState, handles[1], 0))
""",
    )

    not_supported = 3
    assert said == {"alone": [0] * 18, "remote": not_supported, "t4": not_supported}


def test_peers_and_places_of_gpus_agree(tmp_path: Path) -> None:
    machine = Machine.create(
        [PROFILES[name] for name in ("h100-80g", "h100-80g", "h200-141g", "t4")], tmp_path / "m"
    )

    said = answers(
        machine,
        """
def matrix(capability):
    return [[nvml.nvmlDeviceGetP2PStatus(a, b, capability) for b in handles] for a in handles]
index = {ctypes.cast(h, ctypes.c_void_p).value: i for i, h in enumerate(handles)}
def near(level):
    return [index[ctypes.cast(h, ctypes.c_void_p).value]
            for h in nvml.nvmlDeviceGetTopologyNearestGpus(handles[1], level)]
read, nvlink = 0, 2  # pynvml's name of the first is a tuple
say(read=matrix(read), nvlink=matrix(nvlink),
    ancestors=[nvml.nvmlDeviceGetTopologyCommonAncestor(handles[0], h) for h in handles],
    single=near(nvml.NVML_TOPOLOGY_SINGLE), node=near(nvml.NVML_TOPOLOGY_NODE),
    system=near(nvml.NVML_TOPOLOGY_SYSTEM),
    memory=list(nvml.nvmlDeviceGetMemoryAffinity(handles[0], 1, 0)),
    cpus=bin(nvml.nvmlDeviceGetCpuAffinity(handles[0], 64)[0]).count("1") >= 1)
""",
    )

    ok, other_gpu, none = 0, 2, 5
    same_architecture = [ok, ok, ok, other_gpu]
    assert said["read"] == [same_architecture] * 3 + [[other_gpu] * 3 + [ok]]
    assert said["nvlink"] == [
        [ok, ok, none, other_gpu], [ok, ok, none, other_gpu], [none, none, ok, other_gpu],
        [other_gpu, other_gpu, other_gpu, none],
    ]  # fmt: skip
    assert said["ancestors"] == [0, 40, 40, 40]
    assert (said["single"], said["node"], said["system"]) == ([], [0, 2, 3], [0, 2, 3])
    assert (said["memory"], said["cpus"]) == ([1], True)
