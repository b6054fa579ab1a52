"""The watch, look by look, over a fake NVML and a fake ``/proc`` with the files of real slices."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from deviceplugin.model.agent_config import WatchPolicy
from deviceplugin.model.allocations import Owner
from deviceplugin.model.notices import THIS_NODE, EventReason, Notice
from deviceplugin.policy.limits.learnt_sizes import MeasuredSizes, Sizes
from deviceplugin.watch import process_attribution, procfs
from deviceplugin.watch.nvml_processes import GpuReading
from deviceplugin.watch.pid_visibility import PidVisibility
from libvgpu.errors import InventoryError
from libvgpu.sizes import format_size
from support.node.fake_proc import mount_line
from support.node.watch_world import (
    GIB,
    GPU,
    KNOWN,
    MIB,
    OTHER_GPU,
    STRAY,
    WatchWorld,
)

PF_EXITING = 4
OWNER = Owner("ns", "pod-a", "c")


def test_an_honest_process_is_nobodys_business(world: WatchWorld) -> None:
    world.write_ledger(2 * GIB, KNOWN)
    world.put(KNOWN, 2 * GIB)

    world.look(10)

    assert world.charged() == 0
    assert world.messages == []
    assert world.reads == 10  # nothing was in doubt


def test_a_steady_excess_is_charged_after_two_seconds_and_told_once(world: WatchWorld) -> None:
    world.write_ledger(GIB, KNOWN)
    world.put(KNOWN, 3 * GIB)

    world.look(2)
    assert world.charged() == 0
    world.look(1)
    charged = world.charged()
    assert 2 * GIB - 100 * MIB < charged < 2 * GIB  # all but the reserve
    world.look(5)

    assert world.charged() == charged
    assert world.messages == ["unaccounted GPU memory is charged"]
    world.put(KNOWN, GIB)
    world.look(1)
    assert world.charged() == 0
    assert world.messages == ["unaccounted GPU memory is charged", "unaccounted GPU memory is gone"]
    more = (
        f"its processes hold {format_size(charged)} of GPU {GPU} that the shim does not count "
        "(0 B before); this is charged to its slice"
    )
    gone = f"its processes hold no memory of GPU {GPU} any more that the shim does not count"
    assert world.notices == [
        Notice(EventReason.UNACCOUNTED_MEMORY, more, OWNER),
        Notice(EventReason.UNACCOUNTED_MEMORY_GONE, gone, OWNER),
    ]
    world.look(5)
    assert len(world.messages) == 2


def test_memory_that_comes_and_goes_between_readings_is_no_excess(world: WatchWorld) -> None:
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
    assert world.messages == []


@pytest.mark.parametrize(
    ("measured_ns", "block_bytes", "sizes"),
    [
        (0, 0, None),
        (1000, 2 * MIB, Sizes(518 * MIB, 2 * MIB)),
        (1001, 512, Sizes(0, 512)),  # roughly
        (1000, 1, Sizes(518 * MIB)),  # somebody asks
        (1000, 3 * MIB, Sizes(518 * MIB)),
        (1000, 64 * MIB, Sizes(518 * MIB)),
        (1000, (1 << 64) - 1, Sizes(518 * MIB)),
    ],
)
def test_what_a_container_measured_is_told_with_what_it_holds(
    world: WatchWorld, measured_ns: int, block_bytes: int, sizes: Sizes | None
) -> None:
    world.write_ledger(2 * GIB, KNOWN)
    world.write_sizes(518 * MIB, measured_ns, block_bytes)
    world.put(KNOWN, 2 * GIB)

    world.look(1)

    assert world.sizes == ([MeasuredSizes("a", GPU, sizes, 2 * GIB)] if sizes else [])


def test_a_slice_that_was_lowered_may_hold_what_it_had(world: WatchWorld) -> None:
    world.write_ledger(8 * GIB, KNOWN)
    world.put(KNOWN, 8 * GIB)
    asked, limits = world.slices["a"]
    lower = replace(limits.devices[0], memory_limit_bytes=GIB)
    world.slices["a"] = asked, replace(limits, devices=(lower,))

    world.look(5)

    assert world.charged() == 0


def test_a_process_that_the_ledger_does_not_know_bypasses_and_is_not_ended(
    world: WatchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procfs, "end", lambda *_: pytest.fail("it is only to be reported"))
    world.write_ledger(GIB, KNOWN)
    world.put(KNOWN, GIB)
    world.put(STRAY, GIB, inner_pid=1)

    world.look(6)

    (found,) = world.watch.findings.bypassing
    assert (found.pid, found.allocation_id, found.owner) == (STRAY, "a", OWNER)
    assert world.messages == ["unaccounted GPU memory is charged", "process bypasses the shim"]
    text = (
        f"process {STRAY} ({found.command}) uses 1 GiB of GPU {GPU} without the shim, so outside "
        "its slice"
    )
    assert world.notices[1] == Notice(EventReason.SHIM_BYPASSED, text, OWNER)


@pytest.mark.parametrize("inner_pid", [1, KNOWN])
@pytest.mark.parametrize("tells_namespace", [True, False])
def test_a_process_with_the_pid_of_an_honest_one_in_its_namespace_bypasses_all_the_same(
    world: WatchWorld, tells_namespace: bool, inner_pid: int
) -> None:
    """Without namespaces, as an older shim writes it, the start time tells them apart."""
    for pid, start in ((KNOWN, 700), (STRAY, 701)):
        inner = {"inner_pid": inner_pid, "tells_namespace": tells_namespace}
        world.put(pid, GIB, "a", start=start, **inner)
    namespace = world.proc.namespace(KNOWN) if tells_namespace else 0
    world.write_ledger(GIB, inner_pid, start=700, namespace=namespace)

    world.look(6)

    assert [each.pid for each in world.watch.findings.bypassing] == [STRAY]


def test_what_nvml_cannot_tell_is_neither_charged_nor_ended(
    world: WatchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procfs, "end", lambda *_: pytest.fail("it may hold nothing"))
    world.watch.policy = WatchPolicy.TERMINATE
    world.put(STRAY, None)

    world.look(5)

    assert world.charged() == 0
    assert [each.memory_bytes for each in world.watch.findings.bypassing] == [None]
    (record,) = world.log.records
    assert record.fields["bytes"] == "unknown"  # type: ignore[attr-defined]
    assert "uses memory of GPU" in record.notice.text  # type: ignore[attr-defined]


def test_a_process_whose_cgroup_is_gone_disturbs_nobody(world: WatchWorld) -> None:
    world.memory[4711] = GIB
    world.tell_nvml()
    world.write_ledger(GIB, KNOWN)
    world.put(KNOWN, GIB)

    world.look(20)
    del world.memory[KNOWN]
    world.tell_nvml()
    world.look(20)

    assert world.messages == []
    assert world.watch.findings.problem == ""


def test_a_process_that_is_ending_disturbs_nobody(world: WatchWorld) -> None:
    """The lock in its ledger goes first, and a driver may take seconds to free its memory."""
    world.put(KNOWN, 4 * GIB, flags=PF_EXITING)

    world.look(10)

    assert world.messages == []


def test_of_a_container_beyond_its_slice_the_largest_processes_bypass(world: WatchWorld) -> None:
    """However its ledger reads: here it knows all of them, and nothing of what they hold."""
    pids = range(KNOWN, KNOWN + 4)
    for pid, size in zip(pids, (6 * GIB, GIB, 5 * GIB, 2 * GIB), strict=True):
        world.put(pid, size)
    world.write_ledger(0, *pids)

    world.look(6)

    assert [each.memory_bytes for each in world.watch.findings.bypassing] == [6 * GIB]
    assert "more than its slice" in world.watch.findings.bypassing[0].how
    world.put(KNOWN + 3, 9 * GIB)
    world.look(6)
    assert [each.memory_bytes for each in world.watch.findings.bypassing] == [9 * GIB, 6 * GIB]


def test_what_a_forged_ledger_hides_within_the_slice_is_charged_and_no_more(
    world: WatchWorld,
) -> None:
    world.put(KNOWN, 8 * GIB)
    world.write_ledger(0, KNOWN)

    world.look(6)

    assert world.charged() > 7 * GIB
    assert not world.watch.findings.bypassing
    (charge,) = world.watch.findings.shown().charged
    assert (charge.gpu, charge.allocation, charge.memory_bytes) == (GPU, "a", world.charged())


def test_processes_that_take_turns_are_charged(world: WatchWorld) -> None:
    for number in range(6):
        world.memory.clear()
        world.put(STRAY + number, GIB, start=2000 + number)
        world.look(1)

    assert world.charged() == GIB
    assert not world.watch.findings.bypassing


def test_what_shared_memory_is_counted_twice_next_to_a_process_that_ends_is_no_excess(
    world: WatchWorld,
) -> None:
    world.write_ledger(2 * GIB, KNOWN, KNOWN + 20)
    world.put(KNOWN, 2 * GIB)
    world.put(KNOWN + 20, 2 * GIB)
    world.put(STRAY, 3 * GIB, flags=PF_EXITING)
    world.used_bytes = 5 * GIB
    world.tell_nvml()

    world.look(6)

    assert world.charged() == 0


def test_a_process_on_a_gpu_of_which_it_has_no_slice_bypasses(world: WatchWorld) -> None:
    world.gpus.append(OTHER_GPU)
    world.write_ledger(GIB, KNOWN)
    world.put(KNOWN, GIB)
    world.readings[OTHER_GPU] = GpuReading({KNOWN: 3 * GIB}, None)

    world.look()

    (found,) = world.watch.findings.bypassing
    assert (found.gpu, found.has_slice) == (OTHER_GPU, False)
    assert world.watch.findings.outside_bytes(OTHER_GPU) == 3 * GIB
    assert world.charged() == 0


@pytest.mark.parametrize("daemons", [{GPU: 6}, {OTHER_GPU: 7}, {GPU: 0}, {}])
def test_a_mps_server_is_nobodys_and_another_with_its_name_is_told_of(
    world: WatchWorld, daemons: dict[str, int]
) -> None:
    world.mps_daemons = {GPU: 7}
    world.put(STRAY, GIB, name="", command="nvidia-cuda-mps", parent=7)
    world.look()
    assert world.messages == []

    world.mps_daemons = daemons
    world.put(STRAY, GIB, name="", command="nvidia-cuda-mps", parent=7 if daemons else 0)
    world.look()
    assert world.messages == ["process without an allocation uses a GPU"]
    (seen,) = world.watch.findings.foreign
    text = f"{seen.described()}, and belongs to no container with a slice"
    assert world.notices == [Notice(EventReason.FOREIGN_GPU_PROCESS, text, THIS_NODE)]


def test_a_ledger_that_is_missing_accuses_nobody(world: WatchWorld) -> None:
    (world.allocations / "a" / "usage").unlink()  # no container can
    world.watch.policy = WatchPolicy.TERMINATE
    world.put(KNOWN, 8 * GIB)
    world.look()
    assert world.messages == []

    world.put(KNOWN, 10 * GIB)
    world.look()
    assert GIB < world.charged() <= 2 * GIB
    assert (world.watch.findings.bypassing, world.watch.findings.damaged) == ((), ())


def test_limits_that_are_not_whole_excuse_what_lies_next_to_them(world: WatchWorld) -> None:
    (world.allocations / "a" / "limits").chmod(0o600)
    (world.allocations / "a" / "limits").write_bytes(b"of another version")
    os.truncate(world.allocations / "a" / "usage", 0)
    world.put(KNOWN, GIB)

    world.look()

    assert (world.watch.findings.bypassing, world.watch.findings.damaged) == ((), ())


def overwrite(usage: Path, at: int, content: bytes) -> None:
    with open(usage, "r+b") as file:
        file.seek(at)
        file.write(content)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "emptied": (lambda usage: os.truncate(usage, 0), "0 bytes long"),
    "cut off": (lambda usage: os.truncate(usage, 4096), "4096 bytes long"),
    "grown": (lambda usage: os.truncate(usage, 1 << 40), "1099511627776 bytes long"),
    "zeroed": (lambda usage: overwrite(usage, 0, bytes(256)), "overwritten the header"),
    "another layout version": (lambda usage: overwrite(usage, 8, b"\x63"), "header"),
    "another size of its slots": (lambda usage: overwrite(usage, 44, b"\x01"), "header"),
    "another's bytes": (
        lambda usage: usage.write_bytes((usage.parent.parent / "b" / "usage").read_bytes()),
        "another allocation's name",
    ),
}


@pytest.mark.parametrize(("damage", "what"), DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_usage_next_to_whole_limits_is_a_finding(
    world: WatchWorld,
    damage: Callable[[Path], object],
    what: str,
) -> None:
    world.add("b")
    usage = world.allocations / "a" / "usage"
    whole = usage.read_bytes()
    damage(usage)

    world.look(2)
    assert not world.watch.findings.damaged, "it is not steady yet"
    world.look(2)

    (found,) = world.watch.findings.damaged
    assert (found.allocation_id, found.owner) == ("a", OWNER)
    assert what in found.what
    assert world.messages == ["a container's usage file is damaged"]
    (notice,) = world.notices
    assert notice is not None
    assert (notice.reason, notice.subject) == (EventReason.USAGE_DAMAGED, OWNER)
    assert found.what in notice.text
    world.look(4)
    assert len(world.messages) == 1

    os.truncate(usage, len(whole))
    overwrite(usage, 0, whole)
    world.look(1)
    assert not world.watch.findings.damaged


def test_a_container_gains_nothing_by_damaging_its_usage_now_and_then(
    world: WatchWorld,
) -> None:
    usage = world.allocations / "a" / "usage"
    whole = usage.read_bytes()
    world.put(STRAY, GIB)

    for _ in range(3):
        overwrite(usage, 0, bytes(256))
        world.look(1)
        overwrite(usage, 0, whole)
        world.look(1)

    assert [each.pid for each in world.watch.findings.bypassing] == [STRAY]
    overwrite(usage, 0, bytes(256))
    world.look(1)
    assert "keeps its usage unreadable" in world.watch.findings.bypassing[0].how


def test_a_usage_that_is_damaged_between_two_readings_spoils_no_look(world: WatchWorld) -> None:
    reads = 0

    def damage_it() -> None:
        nonlocal reads
        reads += 1
        if reads == 2:  # the first one has found an excess
            overwrite(world.allocations / "a" / "usage", 0, bytes(256))

    world.write_ledger(GIB, KNOWN)
    world.put(KNOWN, 5 * GIB)
    world.on_read = damage_it

    world.look(4)

    assert reads > 2
    assert world.watch.findings.damaged


def test_processes_with_files_from_before_are_not_accused(world: WatchWorld) -> None:
    world.watch.policy = WatchPolicy.TERMINATE
    world.put(KNOWN, 4 * GIB, mounts=mount_line("/allocations/a/limits//deleted"))

    world.look()

    assert world.messages == []
    assert world.charged() == 0


def test_pids_of_another_namespace_are_said_once_and_charges_taken_back(world: WatchWorld) -> None:
    world.set_unaccounted({"a": {GPU: GIB}})
    world.watch._blindness = PidVisibility(is_possible=True)
    world.memory[4711] = GIB
    world.tell_nvml()

    world.look(10)

    assert world.messages.count("the process watch cannot see the GPUs' processes") == 1
    assert "pid 4711" in world.watch.findings.problem
    assert world.charged() == 0
    world.write_ledger(GIB, KNOWN)
    world.put(KNOWN, GIB)
    world.look(1)
    assert world.watch.findings.problem == ""


@pytest.mark.parametrize(
    ("in_ledger", "used_bytes", "is_blind"),
    [(GIB, 0, True), (0, 30 * MIB, False), (0, GIB, True)],
    ids=["ledgers are full", "the driver's own", "the GPU is full"],
)
def test_an_nvml_that_lists_nothing_while_memory_is_used_is_blind(
    world: WatchWorld, in_ledger: int, used_bytes: int, is_blind: bool
) -> None:
    world.watch._blindness = PidVisibility(is_possible=True)
    world.write_ledger(in_ledger, KNOWN)
    world.readings[GPU] = GpuReading({}, None, used_bytes)

    world.look(10)

    assert ("NVML lists no process" in world.watch.findings.problem) is is_blind


def test_a_broken_nvml_is_said_once_and_changes_nothing(world: WatchWorld) -> None:
    world.set_unaccounted({"a": {GPU: GIB}})
    world.broken = InventoryError("NVML is gone")
    with pytest.raises(InventoryError):
        world.watch.look()
    for _ in range(3):
        world.watch._say_problem("NVML is gone")

    assert world.messages == ["the process watch cannot see the GPUs' processes"]
    reason = EventReason.PROCESS_WATCH_UNAVAILABLE
    assert world.notices == [Notice(reason, "NVML is gone", THIS_NODE)]
    assert world.charged() == GIB
    world.broken = None
    world.look(1)
    assert world.watch.findings.problem == ""


def test_of_an_idle_node_only_the_files_are_looked_at(
    world: WatchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        process_attribution, "read_process", lambda *_: pytest.fail("nobody is on a GPU")
    )

    assert world.watch.look() is False
