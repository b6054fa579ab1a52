"""Which allocation a process belongs to, by its mounts, its cgroup and what it has mapped."""

from collections.abc import Mapping, Set
from pathlib import Path

import pytest

from deviceplugin.watch import process_attribution, procfs
from deviceplugin.watch.process_attribution import (
    Attribution,
    AttributionSource,
    ProcessAttribution,
    mounted,
    place_of,
)
from deviceplugin.watch.procfs import MountPoint, read_mounts
from support.node.fake_proc import DEVICE, OTHER_UID, UID, FakeProc, mount_line, pod_path

PID = 4711
TOP = "/allocations"  # of the run directory's file system
HELD = frozenset({"aaa", "bbb"})


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


def mount(source: str, target: str, device: str = DEVICE) -> MountPoint:
    return MountPoint(device, source, target, False)


class AttributionWorld:
    """Attribution over a fake ``/proc``; the agent sees the run directory at `run_dir`."""

    def __init__(self, proc: FakeProc, run_dir: Path, pods: Mapping[str, Set[str]]) -> None:
        self.proc, self.directory = proc, run_dir / "allocations"
        self.directory.mkdir(parents=True)
        proc.path.mkdir(exist_ok=True)
        self.belongings = ProcessAttribution(self.directory, lambda: pods, proc.path)

    def look(self) -> Attribution | None:
        return self.belongings.look(PID, HELD)


def place(world: AttributionWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the run directory be a file system of its own, as the agent sees it."""
    real = procfs.read_mounts

    def read(pid: int | str, proc: Path = procfs.PROC) -> object:
        if pid != "self":
            return real(pid, proc)
        return [mount("/", "/", "8:1"), mount("/", str(world.directory.parent))]

    monkeypatch.setattr(process_attribution, "read_mounts", read)


@pytest.fixture
def world(proc: FakeProc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AttributionWorld:
    world = AttributionWorld(proc, tmp_path / "run", {"aaa": {UID}, "bbb": {OTHER_UID}})
    place(world, monkeypatch)
    return world


def test_a_containers_mount_names_its_allocation(world: AttributionWorld, proc: FakeProc) -> None:
    proc.put(PID, cgroup=pod_path(), mounts=mount_line(f"{TOP}/aaa/limits"), inner_pid=7)

    found = world.look()

    assert found is not None
    assert (found.allocation_id, found.source) == ("aaa", AttributionSource.MOUNTS)
    assert (found.process.pid, found.process.inner_pid) == (PID, 7)


@pytest.mark.parametrize(
    "line",
    [
        mount_line(f"{TOP}/aaa/limits", device="0:78"),  # a tenant's own file system
        mount_line(f"{TOP}/aaa/usage"),
        mount_line(f"{TOP}/aaa/deeper/limits"),
        mount_line("/other/allocations/aaa/limits"),
        mount_line(f"{TOP}/ccc/limits"),  # of an allocation that is not there
        mount_line(TOP, target="/host"),  # who sees the whole directory
        "nonsense\n",
    ],
)
def test_other_mounts_name_nothing(world: AttributionWorld, proc: FakeProc, line: str) -> None:
    proc.put(PID, mounts=line)

    found = world.look()

    assert found is not None
    assert found.allocation_id == ""


def test_who_has_the_files_of_two_belongs_to_neither(
    world: AttributionWorld, proc: FakeProc
) -> None:
    lines = mount_line(f"{TOP}/aaa/limits") + mount_line(f"{TOP}/bbb/limits")
    proc.put(PID, cgroup=pod_path(), mounts=lines)

    found = world.look()

    assert found is not None
    assert found.allocation_id == ""


def test_a_pod_that_mounted_anothers_files_belongs_to_nobody(
    world: AttributionWorld, proc: FakeProc
) -> None:
    proc.put(PID, cgroup=pod_path(), mounts=mount_line(f"{TOP}/bbb/limits"))

    found = world.look()

    assert found is not None
    assert found.allocation_id == ""


def test_files_that_were_removed_since_are_told_apart(
    world: AttributionWorld, proc: FakeProc
) -> None:
    proc.put(PID, cgroup=pod_path(), mounts=mount_line(f"{TOP}/aaa/limits//deleted"))

    found = world.look()

    assert found is not None
    assert (found.allocation_id, found.source) == ("aaa", AttributionSource.OLD_MOUNTS)


def test_the_pod_speaks_for_a_process_that_left_its_mounts(
    world: AttributionWorld, proc: FakeProc
) -> None:
    proc.put(PID, cgroup=pod_path())

    found = world.look()

    assert found is not None
    assert (found.allocation_id, found.source) == ("aaa", AttributionSource.POD)


@pytest.mark.process
def test_a_container_that_one_of_its_processes_names_is_known_by_its_cgroup(
    world: AttributionWorld, proc: FakeProc
) -> None:
    proc.put(PID, cgroup=pod_path())  # a chroot
    proc.put(PID - 1, cgroup=pod_path(), mounts=mount_line(f"{TOP}/aaa/limits"))  # its parent
    sibling = pod_path().replace("c" * 64, "d" * 64)
    proc.put(PID + 1, cgroup=sibling)

    found = world.belongings.of([PID, PID + 1], HELD)

    assert (found[PID].allocation_id, found[PID].source) == ("aaa", AttributionSource.CONTAINER)
    assert found[PID].is_certain
    assert found[PID + 1].source is AttributionSource.POD, "it is another container of the pod"
    proc.put(PID - 1, cgroup=pod_path(OTHER_UID))
    again = world.look()
    assert again is not None and again.identity == found[PID].identity


@pytest.mark.process
def test_a_process_of_a_pod_is_told_apart_as_soon_as_its_container_is_known(
    world: AttributionWorld, proc: FakeProc
) -> None:
    proc.put(PID, cgroup=pod_path())
    (before,) = world.belongings.of([PID], HELD).values()

    proc.put(PID + 1, cgroup=pod_path(), mounts=mount_line(f"{TOP}/aaa/limits"))
    world.belongings.of([PID, PID + 1], HELD)
    after = world.belongings.of([PID, PID + 1], HELD)[PID]

    assert before.source is AttributionSource.POD
    assert (after.allocation_id, after.source) == ("aaa", AttributionSource.CONTAINER)


def test_a_container_whose_processes_have_the_files_of_two_is_not_known(
    proc: FakeProc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = AttributionWorld(proc, tmp_path / "run", {"aaa": {UID}, "bbb": {UID}})
    place(world, monkeypatch)
    for pid, name in ((1, "aaa"), (2, "bbb")):
        proc.put(pid, cgroup=pod_path(), mounts=mount_line(f"{TOP}/{name}/limits"))
    proc.put(PID, cgroup=pod_path())

    found = world.belongings.of([1, 2, PID], HELD)[PID]

    assert (found.allocation_id, found.is_certain) == ("", False)


def test_a_pod_of_two_slices_does_not_say_whose(proc: FakeProc, tmp_path: Path) -> None:
    world = AttributionWorld(proc, tmp_path / "run", {"aaa": {UID}, "bbb": {UID}})
    proc.put(PID, cgroup=pod_path())

    found = world.look()

    assert found is not None
    assert found.allocation_id == ""


def test_a_process_in_no_pod_belongs_where_its_mapped_files_are(
    world: AttributionWorld, proc: FakeProc
) -> None:
    usage = world.directory / "run-1" / "usage"
    usage.parent.mkdir()
    usage.write_bytes(b"x")
    line = f"7f0000000000-7f0000001000 rw-s 00000000 00:4d {usage.stat().st_ino} {usage}\n"
    proc.put(PID, maps=line)
    found = world.look()
    assert found is not None
    assert (found.allocation_id, found.source) == ("run-1", AttributionSource.MAPPED)

    proc.put(PID, maps=line.replace(str(usage.stat().st_ino), "1"))  # another file of that name
    found = world.look()
    assert found is not None
    assert found.allocation_id == ""
    proc.put(PID, maps=line, cgroup=pod_path("1" * 32))  # a pod's mappings prove nothing
    found = world.look()
    assert found is not None
    assert found.allocation_id == ""


def test_a_process_that_is_gone_or_a_zombie_is_nobody(
    world: AttributionWorld, proc: FakeProc
) -> None:
    assert world.look() is None
    proc.put(PID, state="Z")
    assert world.look() is None
    proc.put(PID)
    (proc.path / str(PID) / "cgroup").unlink()
    assert world.look() is None
    assert world.belongings.of([PID], HELD) == {}


def test_what_is_known_is_not_read_again_until_the_pid_is_anothers(
    world: AttributionWorld, proc: FakeProc
) -> None:
    proc.put(PID, cgroup=pod_path(), mounts=mount_line(f"{TOP}/aaa/limits"))
    assert world.belongings.of([PID], HELD)[PID].allocation_id == "aaa"

    (proc.path / str(PID) / "mountinfo").unlink()
    assert world.belongings.of([PID], HELD)[PID].allocation_id == "aaa"

    proc.put(PID, start=2000)  # the same pid, another process
    assert world.belongings.of([PID], HELD)[PID].allocation_id == ""


def test_a_name_with_brackets_hides_neither_state_nor_start(
    world: AttributionWorld, proc: FakeProc
) -> None:
    proc.put(PID, command="a) R 1 (\x1b[2J", start=5)

    found = world.look()

    assert found is not None
    assert found.process.command == "a) R 1 (?[2J"
    assert found.process.start_time_ticks == 5


def test_mounts_beyond_the_bound_are_left_out(
    world: AttributionWorld, proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, flood = mount_line(f"{TOP}/aaa/limits"), mount_line("/x" * 50, "/y" * 50)
    proc.put(PID, cgroup=pod_path(), mounts=first + flood * 100)
    monkeypatch.setattr(procfs, "MOST_BYTES", 1000)

    assert len(list(read_mounts(PID, proc.path))) < 10
    found = world.look()
    assert found is not None
    assert found.allocation_id == "aaa"


def test_a_directory_is_placed_by_the_mount_that_holds_it() -> None:
    mounts = [
        mount("/", "/", "8:1"),
        mount("/host/run", "/run", "0:20"),
        mount("/", "/run/vgpu", "0:30"),
        mount("/elsewhere", "/run/vgpux", "0:31"),
    ]

    assert place_of(mounts, "/run/vgpu/allocations") == ("0:30", "/allocations")
    assert place_of(mounts[:2], "/run/vgpu/allocations") == ("0:20", "/host/run/vgpu/allocations")
    assert place_of(mounts[:1], "/run/vgpu/allocations") == ("8:1", "/run/vgpu/allocations")
    assert place_of([*mounts, mount("/new", "/run/vgpu", "0:40")], "/run/vgpu/allocations") == (
        "0:40",
        "/new/allocations",
    )
    assert place_of([], "/run/vgpu") is None


def test_escaped_paths_are_read(proc: FakeProc) -> None:
    proc.put(PID, mounts=mount_line(r"/my\040dir/aaa/limits"))

    present, gone = mounted(read_mounts(PID, proc.path), (DEVICE, "/my dir"))

    assert (present, gone) == ({"aaa"}, set())
