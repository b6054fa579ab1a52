"""What is removed from a node and what never, by tables of mounts as /proc has them."""

import os
from pathlib import Path

import pytest

from deviceplugin.cleaning.host import HostDirectories, HostInUse, clean
from deviceplugin.cleaning.mounts import read_mounts
from libvgpu.allocation_dirs import AllocationMeta, write_meta
from libvgpu.errors import VgpuError

DISK, TMPFS = "254:1", "0:77"
NODE_NAMESPACE, SERVICE, CONTAINER = "mnt:[1]", "mnt:[2]", "mnt:[3]"


class Host:
    """A node below a directory: its three directories, and processes with their mounts."""

    def __init__(self, base: Path) -> None:
        self.base, self.proc = base, base / "proc"
        self.dirs = HostDirectories(base / "run/vgpu", base / "var/vgpu", base / "run/mps")
        (self.dirs.run / "allocations").mkdir(parents=True)
        (self.dirs.state / "shim/build").mkdir(parents=True)
        for name in ("GPU-1/pipe", "GPU-2", "other"):
            (base / "run/mps" / name).mkdir(parents=True)
        self.root = f"1 0 {DISK} / / rw - ext4 /dev/vda1 rw"
        self.tmpfs = f"2 1 {TMPFS} / {self.dirs.run} rw shared:5 - tmpfs vgpu rw"
        self.process(1, "systemd", NODE_NAMESPACE, self.root, self.tmpfs)
        self.unmounted: list[Path] = []

    def process(self, pid: int, name: str, namespace: str, *mounts: str) -> None:
        directory = self.proc / str(pid)
        (directory / "ns").mkdir(parents=True)
        os.symlink(namespace, directory / "ns/mnt")
        (directory / "comm").write_text(f"{name}\n")
        (directory / "mountinfo").write_text("".join(f"{each}\n" for each in mounts))

    def node_mounts(self, *more: str) -> None:
        (self.proc / "1/mountinfo").write_text("\n".join((self.root, self.tmpfs, *more)) + "\n")

    def clean(self) -> list[Path]:
        return clean(self.dirs, self.proc, self.unmounted.append)

    def is_whole(self) -> bool:
        return (self.dirs.state / "shim/build").is_dir() and (
            self.dirs.run / "allocations"
        ).is_dir()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_all_of_ours_goes_and_nothing_else(host: Host) -> None:
    # A service with mounts of its own has a copy of all of the node's.
    host.process(50, "logind", SERVICE, host.root, host.tmpfs)
    host.process(60, "postgres", CONTAINER, f"1 0 {DISK} /var/other /data rw - ext4 /dev/vda1 rw")
    (host.proc / "self").mkdir()

    removed = host.clean()

    mps = host.base / "run/mps"
    assert removed == [host.dirs.run, host.dirs.state, mps / "GPU-1", mps / "GPU-2"]
    assert host.unmounted == [host.dirs.run]
    assert not host.dirs.run.exists() and not host.dirs.state.exists()
    assert os.listdir(mps) == ["other"]
    assert host.clean() == []


@pytest.mark.parametrize(
    ("device", "below"),
    [(TMPFS, "/allocations/0a/limits"), (TMPFS, "/mps/GPU-1/pipe"), (DISK, "{state}/shim/build/x")],
)
def test_a_mounted_part_of_a_slice_keeps_all(host: Host, device: str, below: str) -> None:
    root = below.format(state=host.dirs.state)
    host.process(70, "python", CONTAINER, f"9 8 {device} {root} /run/vgpu/x ro - tmpfs vgpu rw")

    with pytest.raises(
        HostInUse, match=r"process 70 \(python\) has a slice, mounted at /run/vgpu/x"
    ):
        host.clean()
    assert host.is_whole() and host.unmounted == []


def test_a_name_that_only_begins_alike_is_somebody_elses(host: Host) -> None:
    root = f"{host.dirs.state}-of-another/file"
    host.process(70, "python", CONTAINER, f"9 8 {DISK} {root} /x rw - ext4 /dev/vda1 rw")

    assert host.dirs.state in host.clean()


def test_where_the_disk_is_mounted_elsewhere_its_own_paths_count(host: Host) -> None:
    """The state directory lies on a file system of its own."""
    host.node_mounts(f"3 1 254:9 /@var {host.base}/var rw - btrfs /dev/vdb rw")
    host.process(70, "python", CONTAINER, "9 8 254:9 /@var/vgpu/shim/x /x ro - btrfs /dev/vdb rw")

    with pytest.raises(HostInUse, match="process 70"):
        host.clean()
    assert host.is_whole()


def test_a_program_under_vgpuctl_run_keeps_all(host: Host) -> None:
    directory = host.dirs.run / "allocations/run-1"
    directory.mkdir()
    write_meta(directory, AllocationMeta("run-1", "vgpu", "run", 0.0, owner_pid=80))
    host.process(80, "train", NODE_NAMESPACE)

    with pytest.raises(HostInUse, match=r"process 80 \(train\) runs under `vgpuctl run`"):
        host.clean()
    assert host.is_whole()
    for file in ("ns/mnt", "comm", "mountinfo"):
        (host.proc / "80" / file).unlink()
    (host.proc / "80/ns").rmdir()
    (host.proc / "80").rmdir()
    assert host.dirs.run in host.clean()


def test_a_mount_named_like_two_lines_is_one(host: Host) -> None:
    host.node_mounts("9 1 0:9 /volume/a\rb /pods/a\u2028b rw shared:6 - ext4 /dev/x\x85y rw")

    assert [str(each.root) for each in read_mounts(host.proc / "1")][2:] == ["/volume/a\rb"]


def test_file_systems_of_pipe_directories_go_first(host: Host) -> None:
    pipe = host.dirs.run / "mps/GPU-1/pipe"
    elsewhere = host.base / "run/mps/GPU-2/pipe"
    host.node_mounts(
        f"3 2 0:9 / {pipe} rw shared:6 - tmpfs vgpu-mps rw",
        f"4 1 0:10 / {elsewhere} rw shared:7 - tmpfs vgpu-mps rw",
        "5 1 0:11 / /somewhere/else rw - tmpfs vgpu-mps rw",
    )

    host.clean()

    assert host.unmounted == [pipe, elsewhere, host.dirs.run]


def test_what_somebody_else_mounted_is_not_touched(host: Host) -> None:
    host.node_mounts(f"3 1 0:9 / {host.dirs.state}/cache rw - nfs server:/x rw")
    with pytest.raises(HostInUse, match=f"something else is mounted at {host.dirs.state}/cache"):
        host.clean()

    host.tmpfs = host.tmpfs.replace("tmpfs vgpu", "xfs /dev/vdc")
    host.node_mounts()
    with pytest.raises(HostInUse, match=r"the chart did not mount \(xfs of /dev/vdc\)"):
        host.clean()
    assert host.is_whole()


def test_a_run_directory_that_was_mounted_twice_is_unmounted_twice(host: Host) -> None:
    host.node_mounts(host.tmpfs)
    host.clean()
    assert host.unmounted == [host.dirs.run] * 2


def test_a_directory_that_is_a_link_is_followed_and_a_file_stays(host: Host) -> None:
    link = host.base / "var/run"
    link.symlink_to(host.base / "run")
    host.dirs = HostDirectories(link / "vgpu", host.dirs.state)

    assert host.base / "run/vgpu" in host.clean()


@pytest.mark.parametrize("path", ["/", "/run", "relative/path", "/run/../etc"])
def test_a_path_that_cannot_be_ours_is_refused(host: Host, path: str) -> None:
    host.dirs = HostDirectories(host.dirs.run, Path(path))
    with pytest.raises(VgpuError, match="cannot be a directory of ours"):
        host.clean()
    assert (host.dirs.run / "allocations").is_dir()
