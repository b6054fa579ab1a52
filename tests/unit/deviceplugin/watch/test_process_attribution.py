"""Which allocation a process belongs to, by its mounts, its cgroup and what it has mapped."""

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
from deviceplugin.watch.procfs import MountPoint, read_mapped_files, read_mounts
from support.node.fake_proc import DEVICE, OTHER_UID, UID, FakeProc, mount_line, pod_path

PID = 4711
TOP = "/allocations"  # of the run directory's file system
HELD = frozenset({"aaa", "bbb"})


def mount(source: str, target: str, device: str = DEVICE) -> MountPoint:
    return MountPoint(device, source, target, False)


class World:
    """Attribution over a fake ``/proc``; the run directory is a file system of its own."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.proc, self.directory = FakeProc(path / "proc"), path / "run/allocations"
        self.directory.mkdir(parents=True)
        self.proc.path.mkdir()
        self.pods = {"aaa": {UID}, "bbb": {OTHER_UID}}
        self.belongings = ProcessAttribution(self.directory, lambda: self.pods, self.proc.path)
        real = procfs.read_mounts

        def read(pid: int | str, proc: Path = procfs.PROC) -> object:
            if pid != "self":
                return real(pid, proc)
            return [mount("/", "/", "8:1"), mount("/", str(self.directory.parent))]

        monkeypatch.setattr(process_attribution, "read_mounts", read)

    def look(self) -> Attribution:
        found = self.belongings.look(PID, HELD)
        assert found is not None
        return found


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


MOUNTS, OLD_MOUNTS, POD = (AttributionSource[name] for name in ("MOUNTS", "OLD_MOUNTS", "POD"))
A, B = (mount_line(f"{TOP}/{name}/limits") for name in ("aaa", "bbb"))
OF_A_PROCESS = {
    "its mount": (pod_path(), A, "aaa", MOUNTS),
    "a mount whose files were removed": (
        pod_path(),
        mount_line(f"{TOP}/aaa/limits//deleted"),
        "aaa",
        OLD_MOUNTS,
    ),
    "its pod, as it left its mounts": (pod_path(), "", "aaa", POD),
    "the files of two": (pod_path(), A + B, "", None),
    "the files of another pod": (pod_path(), B, "", None),
    "a tenant's own file system": ("/", mount_line(f"{TOP}/aaa/limits", device="0:78"), "", None),
    "another file": ("/", mount_line(f"{TOP}/aaa/usage"), "", None),
    "a deeper file": ("/", mount_line(f"{TOP}/aaa/deeper/limits"), "", None),
    "another directory": ("/", mount_line("/other/allocations/aaa/limits"), "", None),
    "no such allocation": ("/", mount_line(f"{TOP}/ccc/limits"), "", None),
    "the whole directory": ("/", mount_line(TOP, target="/host"), "", None),
    "nonsense": ("/", "nonsense\n", "", None),
}


@pytest.mark.parametrize(
    ("cgroup", "mounts", "whose", "source"), OF_A_PROCESS.values(), ids=OF_A_PROCESS.keys()
)
def test_what_a_process_has_mounted_and_where_it_runs_tell_whose_it_is(
    world: World,
    cgroup: str,
    mounts: str,
    whose: str,
    source: AttributionSource | None,
) -> None:
    world.proc.put(PID, cgroup=cgroup, mounts=mounts, inner_pid=7)

    found = world.look()

    assert found.allocation_id == whose
    assert source in (None, found.source)
    assert (found.process.pid, found.process.inner_pid) == (PID, 7)


@pytest.mark.process
def test_a_container_that_one_of_its_processes_names_is_known_by_its_cgroup(
    world: World,
) -> None:
    world.proc.put(PID, cgroup=pod_path())  # a chroot
    world.proc.put(PID - 1, cgroup=pod_path(), mounts=A)  # its parent
    sibling = pod_path().replace("c" * 64, "d" * 64)
    world.proc.put(PID + 1, cgroup=sibling)

    found = world.belongings.of([PID, PID + 1], HELD)

    assert (found[PID].allocation_id, found[PID].source) == ("aaa", AttributionSource.CONTAINER)
    assert found[PID].is_certain
    assert found[PID + 1].source is AttributionSource.POD, "it is another container of the pod"
    world.proc.put(PID - 1, cgroup=pod_path(OTHER_UID))
    again = world.look()
    assert again.identity == found[PID].identity


@pytest.mark.process
def test_a_process_of_a_pod_is_told_apart_as_soon_as_its_container_is_known(
    world: World,
) -> None:
    world.proc.put(PID, cgroup=pod_path())
    (before,) = world.belongings.of([PID], HELD).values()

    world.proc.put(PID + 1, cgroup=pod_path(), mounts=A)
    world.belongings.of([PID, PID + 1], HELD)
    after = world.belongings.of([PID, PID + 1], HELD)[PID]

    assert before.source is AttributionSource.POD
    assert (after.allocation_id, after.source) == ("aaa", AttributionSource.CONTAINER)


def test_a_container_whose_processes_have_the_files_of_two_is_not_known(
    world: World,
) -> None:
    world.pods = {"aaa": {UID}, "bbb": {UID}}
    world.proc.put(PID, cgroup=pod_path())
    assert world.look().allocation_id == "", "a pod of two slices does not say whose"

    for pid, mounts in ((1, A), (2, B)):
        world.proc.put(pid, cgroup=pod_path(), mounts=mounts)
    found = world.belongings.of([1, 2, PID], HELD)[PID]

    assert (found.allocation_id, found.is_certain) == ("", False)


def test_a_process_in_no_pod_belongs_where_its_mapped_files_are(world: World) -> None:
    usage = world.directory / "run-1" / "usage"
    usage.parent.mkdir()
    usage.write_bytes(b"x")
    line = f"7f0000000000-7f0000001000 rw-s 00000000 00:4d {usage.stat().st_ino} {usage}\n"
    world.proc.put(PID, maps=line)
    found = world.look()
    assert (found.allocation_id, found.source) == ("run-1", AttributionSource.MAPPED)

    world.proc.put(PID, maps=line.replace(str(usage.stat().st_ino), "1"))  # another of its name
    assert world.look().allocation_id == ""
    world.proc.put(PID, maps=line, cgroup=pod_path("1" * 32))  # a pod's mappings prove nothing
    assert world.look().allocation_id == ""


@pytest.mark.parametrize("end", "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")
def test_a_file_named_like_a_line_is_one_file(world: World, end: str) -> None:
    name = f"/home/x{end}1-2 r--p 0 0:77 inode /run/vgpu/allocations/a/limits"
    world.proc.put(PID, maps=f"1-2 r--p 0 0:77 5 {name}\n", mounts=mount_line(f"/a{end}b", "/c d"))

    assert list(read_mapped_files(PID, world.proc.path)) == [(5, name)]
    assert [each.source for each in read_mounts(PID, world.proc.path)] == [f"/a{end}b"]


def test_a_process_that_is_gone_or_a_zombie_is_nobody(world: World) -> None:
    assert world.belongings.look(PID, HELD) is None
    world.proc.put(PID, state="Z")
    assert world.belongings.look(PID, HELD) is None
    world.proc.put(PID)
    (world.proc.path / str(PID) / "cgroup").unlink()
    assert world.belongings.look(PID, HELD) is None
    assert world.belongings.of([PID], HELD) == {}


def test_what_is_known_is_not_read_again_until_the_pid_is_anothers(world: World) -> None:
    world.proc.put(PID, cgroup=pod_path(), mounts=A)
    assert world.belongings.of([PID], HELD)[PID].allocation_id == "aaa"

    (world.proc.path / str(PID) / "mountinfo").unlink()
    assert world.belongings.of([PID], HELD)[PID].allocation_id == "aaa"

    world.proc.put(PID, start=2000)  # the same pid, another process
    assert world.belongings.of([PID], HELD)[PID].allocation_id == ""


def test_a_name_with_brackets_hides_neither_state_nor_start(world: World) -> None:
    world.proc.put(PID, command="a) R 1 (\x1b[2J", start=5)

    found = world.look()

    assert found.process.command == "a) R 1 (?[2J"
    assert found.process.start_time_ticks == 5


def test_mounts_beyond_the_bound_are_left_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, flood = mount_line(f"{TOP}/aaa/limits"), mount_line("/x" * 50, "/y" * 50)
    world.proc.put(PID, cgroup=pod_path(), mounts=first + flood * 100)
    monkeypatch.setattr(procfs, "MOST_BYTES", 1000)

    assert len(list(read_mounts(PID, world.proc.path))) < 10
    assert world.look().allocation_id == "aaa"


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


def test_escaped_paths_are_read(world: World) -> None:
    world.proc.put(PID, mounts=mount_line(r"/my\040dir/aaa/limits"))

    present, gone = mounted(read_mounts(PID, world.proc.path), (DEVICE, "/my dir"))

    assert (present, gone) == ({"aaa"}, set())
