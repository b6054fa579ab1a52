"""The watch, look by look, over a fake NVML and a fake ``/proc`` with the files of real slices."""

import logging
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from deviceplugin import belonging, memory_watch, processes
from deviceplugin.belonging import Belongings
from deviceplugin.blindness import Blindness
from deviceplugin.config import WatchPolicy
from deviceplugin.gpu_processes import GpuReading
from deviceplugin.holdings import Holding, Owner
from deviceplugin.memory_look import Charges, Watched
from deviceplugin.memory_watch import MemoryWatch
from deviceplugin.processes import Mount
from libvgpu._native import ffi, lib
from libvgpu.errors import InventoryError
from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.region import create
from support.fake_proc import DEVICE, OTHER_UID, UID, FakeProc, mount_line, pod_path

GPU, OTHER_GPU = "GPU-a", "GPU-b"
GIB, MIB = 1 << 30, 1 << 20
KNOWN, STRAY = 11, 12  # pids


class World:
    """A watch whose surroundings are plain values."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.proc = FakeProc(path / "proc")
        self.proc.path.mkdir()
        self.allocations = path / "run" / "allocations"
        self.allocations.mkdir(parents=True)
        self.now_s = 100.0
        self.readings: dict[str, GpuReading] = {}
        self.families = {GPU: Family.VGPU}
        self.slices: dict[str, tuple[ContainerLimits, ContainerLimits]] = {}  # asked, in force
        self.broken: Exception | None = None
        self.memory: dict[int, int | None] = {}
        self.used_bytes: int | None = None
        self.reads = 0
        self.on_read = lambda: None
        real = processes.read_mounts

        def read_mounts(pid: int | str, proc: Path = processes.PROC) -> object:
            here = [Mount(DEVICE, "/", str(path / "run"), False)]
            return here if pid == "self" else real(pid, proc)

        monkeypatch.setattr(belonging, "read_mounts", read_mounts)
        monkeypatch.setattr(memory_watch, "has_own_pid_namespace", lambda: False)
        pods = {"a": {UID}, "b": {OTHER_UID}}
        self.watch = MemoryWatch(
            lambda: self.families, self.watched, self.charge,
            Belongings(self.allocations, lambda: pods, self.proc.path),
            WatchPolicy.REPORT, self.read, lambda: self.now_s,
        )  # fmt: skip

    def read(self, uuids: Sequence[str]) -> dict[str, GpuReading]:
        self.reads += 1
        self.on_read()
        if self.broken is not None:
            raise self.broken
        return {u: self.readings.get(u, GpuReading({}, None)) for u in uuids}

    def watched(self) -> list[Watched]:
        return [
            Watched(
                Holding(name, Family.VGPU, GPU, GIB, owner=Owner("ns", f"pod-{name}", "c")),
                self.allocations / name, asked, limits,
            )
            for name, (asked, limits) in self.slices.items()
        ]  # fmt: skip

    def charge(self, charges: Charges) -> None:
        for name, by_gpu in charges.items():
            asked, limits = self.slices[name]
            devices = tuple(
                replace(d, unaccounted_bytes=by_gpu.get(d.uuid, d.unaccounted_bytes))
                for d in limits.devices
            )
            self.slices[name] = asked, replace(limits, devices=devices)

    def add(self, name: str = "a", limit_bytes: int = 8 * GIB) -> None:
        limits = ContainerLimits(name, Family.VGPU, (DeviceLimit(GPU, limit_bytes),))
        create(self.allocations / name, limits)
        self.slices[name] = limits, limits

    def write_ledger(self, used_bytes: int, *pids: int, name: str = "a") -> None:
        """Writes a ledger with processes that count as living (their locks are not asked for)."""
        path = self.allocations / name / "usage"
        image = bytearray(path.read_bytes())
        file = ffi.from_buffer("unsigned char[]", image)
        ffi.cast("struct vgpu_usage_header *", file).hi_slot = len(pids)
        lib.usage_device(file, 0).total_low = used_bytes
        for slot, pid in enumerate(pids):
            lib.usage_slot(file, slot).gen = 1
            lib.usage_slot(file, slot).pid = pid
        path.write_bytes(image)

    def put(self, pid: int, memory_bytes: int | None, name: str = "a", **more: object) -> None:
        """Puts a process of a slice onto the GPU."""
        if name:
            uid = UID if name == "a" else OTHER_UID
            more.setdefault("mounts", mount_line(f"/allocations/{name}/limits"))
            more.setdefault("cgroup", pod_path(uid))
        self.proc.put(pid, **more)  # type: ignore[arg-type]
        self.memory[pid] = memory_bytes
        self.tell_nvml()

    def tell_nvml(self) -> None:
        self.readings[GPU] = GpuReading(dict(self.memory), self.used_bytes)

    def look(self, count: int = 4) -> None:
        for _ in range(count):
            self.watch.look()
            self.now_s += 1.05

    def charged(self, name: str = "a") -> int:
        return self.slices[name][1].devices[0].unaccounted_bytes


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr("libvgpu.ledger_view.is_slot_held", lambda descriptor, slot: True)
    world = World(tmp_path, monkeypatch)
    world.add()
    return world


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "deviceplugin")
    return caplog


def messages(told: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in told.records]


def test_an_honest_process_is_nobodys_business(
    world: World, told: pytest.LogCaptureFixture
) -> None:
    world.write_ledger(2 * GIB, KNOWN)
    world.put(KNOWN, 2 * GIB)

    world.look(10)

    assert world.charged() == 0
    assert messages(told) == []
    assert world.reads == 10  # nothing was in doubt


def test_a_steady_excess_is_charged_after_two_seconds_and_told_once(
    world: World, told: pytest.LogCaptureFixture
) -> None:
    world.write_ledger(GIB, KNOWN)
    world.put(KNOWN, 3 * GIB)

    world.look(2)
    assert world.charged() == 0
    world.look(1)
    charged = world.charged()
    assert 2 * GIB - 100 * MIB < charged < 2 * GIB  # all but the reserve
    world.look(5)

    assert world.charged() == charged
    assert messages(told) == ["memory beside the ledger"]
    world.put(KNOWN, GIB)
    world.look(1)
    assert world.charged() == 0
    assert messages(told) == ["memory beside the ledger", "memory beside the ledger is gone"]
    world.look(5)
    assert len(messages(told)) == 2


def test_memory_that_comes_and_goes_between_readings_is_no_excess(
    world: World, told: pytest.LogCaptureFixture
) -> None:
    world.write_ledger(GIB, KNOWN)
    world.put(KNOWN, GIB)
    reads = 0

    def busy() -> None:  # its program allocates, and frees before the ledger is read
        nonlocal reads
        reads += 1
        world.memory[KNOWN] = GIB if reads % 3 == 0 else 5 * GIB
        world.tell_nvml()

    world.on_read = busy
    for _ in range(6):
        reads = 0  # the first readings of each look meet it
        world.look(1)

    assert world.charged() == 0
    assert messages(told) == []


def test_a_slice_that_was_lowered_may_hold_what_it_had(world: World) -> None:
    world.write_ledger(8 * GIB, KNOWN)
    world.put(KNOWN, 8 * GIB)
    asked, limits = world.slices["a"]
    lower = replace(limits.devices[0], memory_limit_bytes=GIB)
    world.slices["a"] = asked, replace(limits, devices=(lower,))

    world.look(5)

    assert world.charged() == 0


def test_a_process_that_the_ledger_does_not_know_bypasses_and_is_not_ended(
    world: World, told: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "end", lambda *_: pytest.fail("it is only to be reported"))
    world.write_ledger(GIB, KNOWN)
    world.put(KNOWN, GIB)
    world.put(STRAY, GIB, inner_pid=1)

    world.look(6)

    (found,) = world.watch.findings.bypassing
    assert (found.pid, found.allocation_id, found.owner) == (STRAY, "a", "ns/pod-a/c")
    assert messages(told) == ["memory beside the ledger", "process bypasses its slice"]


def test_what_nvml_cannot_tell_is_neither_charged_nor_ended(
    world: World, told: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "end", lambda *_: pytest.fail("it may hold nothing"))
    world.watch.policy = WatchPolicy.TERMINATE
    world.put(STRAY, None)

    world.look(5)

    assert world.charged() == 0
    assert [each.memory_bytes for each in world.watch.findings.bypassing] == [None]
    (record,) = told.records
    assert record.fields["bytes"] == "unknown"  # type: ignore[attr-defined]


def test_a_process_whose_cgroup_is_gone_disturbs_nobody(
    world: World, told: pytest.LogCaptureFixture
) -> None:
    world.memory[4711] = GIB
    world.tell_nvml()
    world.write_ledger(GIB, KNOWN)
    world.put(KNOWN, GIB)

    world.look(20)
    del world.memory[KNOWN]
    world.tell_nvml()
    world.look(20)

    assert messages(told) == []
    assert world.watch.findings.problem == ""


def test_a_process_on_a_gpu_of_which_it_has_no_slice_bypasses(world: World) -> None:
    world.families[OTHER_GPU] = Family.VGPU
    world.write_ledger(GIB, KNOWN)
    world.put(KNOWN, GIB)
    world.readings[OTHER_GPU] = GpuReading({KNOWN: 3 * GIB}, None)

    world.look()

    (found,) = world.watch.findings.bypassing
    assert (found.gpu, found.has_slice) == (OTHER_GPU, False)
    assert world.watch.findings.outside_bytes(OTHER_GPU) == 3 * GIB
    assert world.charged() == 0


def test_a_mps_server_is_nobodys_and_another_stranger_is_told_of(
    world: World, told: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "program_name", lambda pid: "nvidia-cuda-mps-server")
    world.families[GPU] = Family.MPS
    world.put(STRAY, GIB, name="")
    world.look()
    assert messages(told) == []

    world.families[GPU] = Family.VGPU
    world.look()
    assert messages(told) == ["process of no allocation uses a GPU"]


def test_a_ledger_that_cannot_be_read_accuses_nobody(
    world: World, told: pytest.LogCaptureFixture
) -> None:
    os.truncate(world.allocations / "a" / "usage", 100)
    world.watch.policy = WatchPolicy.TERMINATE
    world.put(KNOWN, 8 * GIB)
    world.look()
    assert messages(told) == []

    world.put(KNOWN, 10 * GIB)
    world.look()
    assert GIB < world.charged() <= 2 * GIB
    assert world.watch.findings.bypassing == ()


def test_processes_with_files_from_before_are_not_accused(
    world: World, told: pytest.LogCaptureFixture
) -> None:
    world.watch.policy = WatchPolicy.TERMINATE
    world.put(KNOWN, 4 * GIB, mounts=mount_line("/allocations/a/limits//deleted"))

    world.look()

    assert messages(told) == []
    assert world.charged() == 0


def test_pids_of_another_namespace_are_said_once_and_charges_taken_back(
    world: World, told: pytest.LogCaptureFixture
) -> None:
    world.charge({"a": {GPU: GIB}})
    world.watch._blindness = Blindness(is_possible=True)
    world.memory[4711] = GIB
    world.tell_nvml()

    world.look(10)

    assert messages(told).count("the watch beside the shim sees nothing") == 1
    assert "pid 4711" in world.watch.findings.problem
    assert world.charged() == 0
    world.write_ledger(GIB, KNOWN)
    world.put(KNOWN, GIB)
    world.look(1)
    assert world.watch.findings.problem == ""


def test_an_nvml_that_lists_nothing_while_ledgers_are_full_is_blind(world: World) -> None:
    world.watch._blindness = Blindness(is_possible=True)
    world.write_ledger(GIB, KNOWN)

    world.look(10)

    assert "NVML lists no process" in world.watch.findings.problem


def test_a_broken_nvml_is_said_once_and_changes_nothing(
    world: World, told: pytest.LogCaptureFixture
) -> None:
    world.charge({"a": {GPU: GIB}})
    world.broken = InventoryError("NVML is gone")
    with pytest.raises(InventoryError):
        world.watch.look()
    for _ in range(3):
        world.watch._say_problem("NVML is gone")

    assert messages(told) == ["the watch beside the shim sees nothing"]
    assert world.charged() == GIB
    world.broken = None
    world.look(1)
    assert world.watch.findings.problem == ""


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        return process.wait(0.2) == -signal.SIGKILL
    except subprocess.TimeoutExpired:
        return False


def test_terminate_ends_the_bypassing_process_alone(
    world: World, told: pytest.LogCaptureFixture, victim: subprocess.Popen[bytes]
) -> None:
    world.watch.policy = WatchPolicy.TERMINATE
    world.put(victim.pid, GIB)

    world.look(2)
    assert not ended(victim)
    world.look(2)

    assert ended(victim)
    assert "process ended: it bypassed its slice" in messages(told)
    assert world.watch.findings.ended == 1


CHANGES = {
    "another process has its pid": {"start": 2000},
    "it is in another pod": {"cgroup": pod_path(OTHER_UID)},
    "its mounts are gone": {"mounts": ""},
    "it only waits to be reaped": {"state": "Z"},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_what_has_changed_since_is_not_ended(
    world: World, victim: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch,
    change: dict[str, object],
) -> None:  # fmt: skip
    world.watch.policy = WatchPolicy.TERMINATE
    world.put(victim.pid, GIB)
    world.look(2)
    real = processes.end

    def end(pid: int, is_still: object) -> bool:  # just before, the process becomes another
        world.put(victim.pid, GIB, **change)
        return real(pid, is_still)  # type: ignore[arg-type]

    monkeypatch.setattr(processes, "end", end)
    world.look(1)

    assert not ended(victim)
    assert world.watch.findings.ended == 0


def test_a_new_name_does_not_save_it(world: World, victim: subprocess.Popen[bytes]) -> None:
    world.watch.policy = WatchPolicy.TERMINATE
    for number in range(4):
        world.put(victim.pid, GIB, command=f"name-{number}")
        world.look(1)

    assert ended(victim)


def test_who_only_its_pod_speaks_for_is_not_ended(
    world: World, victim: subprocess.Popen[bytes]
) -> None:
    world.watch.policy = WatchPolicy.TERMINATE
    world.put(victim.pid, GIB, mounts="")

    world.look(6)

    assert [each.pid for each in world.watch.findings.bypassing] == [victim.pid]
    assert world.charged() == GIB
    assert not ended(victim)


def test_a_process_of_no_allocation_is_never_ended(
    world: World, victim: subprocess.Popen[bytes]
) -> None:
    world.watch.policy = WatchPolicy.TERMINATE
    world.put(victim.pid, GIB, name="")

    world.look(6)

    assert [each.pid for each in world.watch.findings.foreign] == [victim.pid]
    assert not ended(victim)


def test_an_idle_node_is_asked_nothing_but_nvml(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.look(1)  # an earlier agent may have charged something
    monkeypatch.setattr(world.watch, "_watched", lambda: pytest.fail("nothing is to be compared"))

    assert world.watch.look() is False
