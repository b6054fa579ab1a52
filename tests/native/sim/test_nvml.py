"""NVML on a simulated machine, through nvidia-ml-py: versions, books, how GPUs are connected."""

import re
from pathlib import Path

import pytest

from libvgpu.errors import SimulationError
from libvgpu.sim import PROFILES, Machine
from support import ROOT
from support.shim.symbols import exports
from support.sim.driver import library_of
from support.sim.nvml_programs import NVML_PRELUDE, answers, until_ready
from support.sim.programs import busy, run, said_in, start
from support.waiting import PATIENCE_S

pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")

WINDOW_US = 1e6 / 6


# ---- versions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cuda", "driver"),
    [(11080, "520.61.05"), (12040, "550.54.14"), (12080, "570.86.10"), (13000, "580.65.06")],
)
def test_the_driver_is_the_one_that_brought_the_machines_cuda(
    tmp_path: Path, cuda: int, driver: str
) -> None:
    machine = Machine.create([PROFILES["t4"]], tmp_path / "m", driver_version=cuda)

    code = """
say(driver=nvml.nvmlSystemGetDriverVersion(), nvml=nvml.nvmlSystemGetNVMLVersion(),
    cuda=nvml.nvmlSystemGetCudaDriverVersion_v2(), before=(nvml.nvmlShutdown(),
    nvml.nvmlSystemGetCudaDriverVersion())[1])
"""
    assert answers(machine, code) == {
        "driver": driver,
        "nvml": f"{cuda // 1000}.{driver}",
        "cuda": cuda,
        "before": cuda,
    }


def test_who_only_looks_takes_no_place_among_the_machines_processes(machine: Machine) -> None:
    """The shim keeps NVML open in each process, which is one process and not two."""
    others = [Machine.open(machine.directory) for _ in range(255)]
    with pytest.raises(SimulationError):
        Machine.open(machine.directory)

    assert answers(machine, "say(name=nvml.nvmlDeviceGetUUID(handles[0]))") == {
        "name": machine.devices[0].uuid
    }
    assert {len(each.devices) for each in others} == {len(machine.devices)}


def test_a_gpu_says_where_it_is_and_what_class_of_device(machine: Machine) -> None:
    code = """
plain, more = nvml.nvmlDeviceGetPciInfo(handles[0]), nvml.nvmlPciInfoExt_v1_t()
more.version = 7
wrong = refusal(nvml.nvmlDeviceGetPciInfoExt, handles[0], ctypes.byref(more))
more.version = nvml.nvmlPciInfoExt_v1
nvml.nvmlDeviceGetPciInfoExt(handles[0], ctypes.byref(more))
text = lambda value: value.decode() if isinstance(value, bytes) else value
say(same=[text(getattr(plain, name)) == text(getattr(more, name)) for name in
          ("domain", "bus", "device", "pciDeviceId", "pciSubSystemId", "busId")],
    kind=[more.baseClass, more.subClass],
    wrong=wrong)
"""
    assert answers(machine, code) == {"same": [True] * 6, "kind": [3, 2], "wrong": 25}


# ---- the sampling window -------------------------------------------------------------------------


def test_a_sample_is_given_once_and_says_when_its_window_ended(machine: Machine) -> None:
    code = """
def newest(since):
    try:
        return [[s.pid, s.timeStamp, s.smUtil]
                for s in nvml.nvmlDeviceGetProcessUtilization(handles[0], since)]
    except nvml.NVMLError_NotFound:
        return []
deadline, ends, pids = time.monotonic() + 60, [], set()
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
        said = said_in(machine, NVML_PRELUDE + code)
    finally:
        worker.kill()
        worker.wait()

    assert said["pids"] == [worker.pid]
    assert len(said["ends"]) == 4
    for earlier, later in zip(said["ends"], said["ends"][1:], strict=False):
        windows = (later - earlier) / WINDOW_US
        assert windows >= 1 - 1e-4
        assert windows == pytest.approx(round(windows), abs=1e-4)
    assert 0 <= said["now_us"] - said["ends"][-1] < PATIENCE_S * 1e6
    assert said["seen"] >= said["ends"][-1]
    assert said["infos"] == [[worker.pid, True]]
    assert said["busy"] == {"power": said["busy"]["power"], "state": 0, "reasons": 0, "mhz": 1980}
    assert said["busy"]["power"] > 600_000


def test_an_idle_gpu_says_so(machine: Machine) -> None:
    code = """
same(nvml.nvmlDeviceGetPowerUsage(handles[0]), 100_000)
same(nvml.nvmlDeviceGetPerformanceState(handles[0]), 8)
same(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handles[0]), 1)
same(nvml.nvmlDeviceGetClockInfo(handles[0], nvml.NVML_CLOCK_SM), 345)
same(nvml.nvmlDeviceGetUtilizationRates(handles[0]).gpu, 0)
same(nvml.nvmlDeviceGetVbiosVersion(handles[0]), "simulated")
same(refusal(nvml.nvmlDeviceGetProcessUtilization, handles[0], 0), 6)
"""
    run(machine, NVML_PRELUDE + code)


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
    said = said_in(costly_machine, NVML_PRELUDE + code)

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

    said = said_in(machine, NVML_PRELUDE + LINKS.replace("LINKS_A_GPU", str(links)))

    assert (said["count"], said["beyond"]) == (links, 2)
    for own_bus, ends in zip(said["buses"], said["ends"], strict=True):
        others = [bus for bus in said["buses"] if bus != own_bus]
        assert sorted(ends) == sorted([[0, bus] for bus in others] * (links // len(others)))


def test_many_sxm_gpus_are_linked_to_switches(tmp_path: Path) -> None:
    machine = Machine.create([PROFILES["h100-80g"]] * 8, tmp_path / "m")

    said = said_in(machine, NVML_PRELUDE + LINKS.replace("LINKS_A_GPU", "18"))

    switch = 2
    assert [len(ends) for ends in said["ends"]] == [18] * 8
    assert {kind for ends in said["ends"] for kind, _ in ends} == {switch}
    assert {bus for ends in said["ends"] for _, bus in ends}.isdisjoint(said["buses"])


def test_a_gpu_alone_or_without_nvlink_has_no_links(tmp_path: Path) -> None:
    machine = Machine.create([PROFILES["h100-80g"], PROFILES["t4"]], tmp_path / "m")

    code = """
say(alone=[nvml.nvmlDeviceGetNvLinkState(handles[0], link) for link in range(18)],
    remote=refusal(nvml.nvmlDeviceGetNvLinkRemotePciInfo, handles[0], 0),
    t4=refusal(nvml.nvmlDeviceGetNvLinkState, handles[1], 0))
"""
    said = answers(machine, code)

    not_supported = 3
    assert said == {"alone": [0] * 18, "remote": not_supported, "t4": not_supported}


def test_peers_and_places_of_gpus_agree(tmp_path: Path) -> None:
    machine = Machine.create(
        [PROFILES[name] for name in ("h100-80g", "h100-80g", "h200-141g", "t4")], tmp_path / "m"
    )

    code = """
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
"""
    said = answers(machine, code)

    ok, other_gpu, none = 0, 2, 5
    same_architecture = [ok, ok, ok, other_gpu]
    assert said["read"] == [same_architecture] * 3 + [[other_gpu] * 3 + [ok]]
    assert said["nvlink"] == [
        [ok, ok, none, other_gpu],
        [ok, ok, none, other_gpu],
        [none, none, ok, other_gpu],
        [other_gpu, other_gpu, other_gpu, none],
    ]
    assert said["ancestors"] == [0, 10, 40, 40]
    assert (said["single"], said["node"], said["system"]) == ([0], [0, 2, 3], [0, 2, 3])
    assert (said["memory"], said["cpus"]) == ([1], True)


def test_gpus_lie_by_pairs_behind_a_switch_and_by_fours_at_a_numa_node(tmp_path: Path) -> None:
    machine = Machine.create([PROFILES["t4"]] * 6, tmp_path / "m")

    code = """
index = {ctypes.cast(h, ctypes.c_void_p).value: i for i, h in enumerate(handles)}
count = os.sysconf("SC_NPROCESSORS_CONF")
def cpus(handle):
    words = nvml.nvmlDeviceGetCpuAffinity(handle, 64)
    return [cpu for cpu in range(64 * 64) if words[cpu // 64] >> cpu % 64 & 1]
def near(cpu):
    return [index[ctypes.cast(h, ctypes.c_void_p).value]
            for h in nvml.nvmlSystemGetTopologyGpuSet(cpu)]
say(levels=[[nvml.nvmlDeviceGetTopologyCommonAncestor(a, b) for b in handles] for a in handles],
    minors=[nvml.nvmlDeviceGetMinorNumber(h) for h in handles],
    nodes=[list(nvml.nvmlDeviceGetMemoryAffinity(h, 1, 0)) for h in handles],
    cpus=[cpus(h) for h in handles], near=[near(cpu) for cpu in range(count)], count=count)
"""
    said = answers(machine, code)

    same, switch, node, system = 0, 10, 40, 50
    assert said["levels"] == [
        [
            same if a == b else switch if a // 2 == b // 2 else node if a // 4 == b // 4 else system
            for b in range(6)
        ]
        for a in range(6)
    ]
    assert said["minors"] == list(range(6))
    assert said["nodes"] == [[1]] * 4 + [[2]] * 2
    assert [sorted(gpus) for gpus in said["near"]] == [
        [gpu for gpu in range(6) if cpu in said["cpus"][gpu]] for cpu in range(said["count"])
    ]
    first, second = said["cpus"][0], said["cpus"][5]
    assert said["cpus"] == [first] * 4 + [second] * 2
    if said["count"] >= 2:
        assert first + second == list(range(said["count"]))
    else:  # too few to go round
        assert first == second == [0]


# ---- wrong calls ---------------------------------------------------------------------------------


def test_wrong_arguments_are_refused_by_every_call(machine: Machine) -> None:
    table = (ROOT / "libvgpu/sim/nvml/entries.def").read_text()
    there = exports(library_of(machine, "libnvidia-ml.so.1"))
    asked = [
        name
        for name in re.findall(r"^ENTRY\((nvmlDevice\w+),", table, flags=re.MULTILINE)
        if name in there and not re.match(r"nvmlDevice(GetHandleBy|GetCount|SetComputeMode)", name)
    ]
    assert len(asked) > 100
    code = f"""
library = ctypes.CDLL("libnvidia-ml.so.1")
nothing, somewhere = [None] * 6, ctypes.create_string_buffer(64)
def answers(*arguments):
    return sorted({{library[name](*arguments) for name in {asked}}})
room = [ctypes.create_string_buffer(4096) for _ in range(6)]
say(no_result=answers(handles[0], *nothing), no_device=answers(None, *room),
    no_handle=answers(somewhere, *room), ended=(nvml.nvmlShutdown(), answers(handles[0], *room))[1])
"""
    said = answers(machine, code)

    uninitialized, invalid_argument = 1, 2
    assert said == {
        "no_result": [invalid_argument],
        "no_device": [invalid_argument],
        "no_handle": [invalid_argument],
        "ended": [uninitialized],
    }
