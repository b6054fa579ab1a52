"""Processes that leave their container's mounts behind, as the kernel really shows them.

Only their cgroup is made up, since a test is in no pod.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deviceplugin.watch.process_attribution import AttributionSource, ProcessAttribution
from deviceplugin.watch.procfs import start_time
from support.lines import expect, next_line
from support.node.fake_proc import UID, FakeProc, pod_path
from support.node.watched import can_contain

pytestmark = pytest.mark.skipif(not can_contain(), reason="may not make mount namespaces")

HELD = frozenset({"aaa"})
#: A container: its `limits` is mounted, and then the rest of the command is run.
_CONTAINER = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
_CHROOT = """
import os, sys
print(os.getpid(), flush=True)
os.chroot(sys.argv[1])
print("ready", flush=True)
sys.stdin.read()
"""
#: A mount namespace of its own, with a new root in place of all that was mounted.
_PIVOT = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
root, unshared, recursive_private, detached = sys.argv[1].encode(), 0x20000, 0x44000, 2
steps = [libc.unshare(unshared), libc.mount(None, b"/", None, recursive_private, None)]
steps.append(libc.mount(b"new", root, b"tmpfs", 0, None))
os.mkdir(root + b"/old")
steps.append(libc.syscall(155, root, root + b"/old"))  # pivot_root on x86-64
print(os.getpid(), flush=True)
steps.append(libc.umount2(b"/old", detached))
print("ready" if not any(steps) else steps, flush=True)
sys.stdin.read()
"""


class World:
    """A slice, and processes in the one container that has it."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.limits = base / "run/allocations/aaa/limits"
        self.limits.parent.mkdir(parents=True)
        self.limits.touch()
        (base / "root").mkdir()
        (base / "target").touch()
        self.proc = FakeProc(base / "proc")
        self.attribution = ProcessAttribution(
            base / "run/allocations", lambda: {"aaa": {UID}, "bbb": {UID}}, self.proc.path
        )
        self._programs: list[subprocess.Popen[str]] = []

    def run(self, *command: str) -> int:
        """Runs a command in a new container; returns the pid of what says ``ready`` there."""
        program = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", _CONTAINER, "sh", self.limits, self.base / "target",
             *command],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._programs.append(program)
        pid = int(next_line(program))
        expect(program)
        return pid

    def put_into_pod(self, pid: int) -> None:
        """Has the watch see a process as the kernel shows it, in the cgroup of a pod."""
        self.proc.put(pid, start=start_time(pid) or 0, cgroup=pod_path())
        (self.proc.path / str(pid) / "mountinfo").unlink()
        for name in ("mountinfo", "ns"):
            (self.proc.path / str(pid) / name).symlink_to(f"/proc/{pid}/{name}")

    def close(self) -> None:
        for program in self._programs:
            assert program.stdin
            program.stdin.close()
            program.kill()
            program.wait()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def child(world: World, code: str) -> tuple[int, list[int]]:
    command = [sys.executable, "-c", code, str(world.base / "root")]
    pid = world.run("sh", "-c", '"$@"; true', "sh", *command)
    return pid, [int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])]


def chrooted_child(world: World) -> tuple[int, list[int]]:
    return child(world, _CHROOT)


def chrooted_from_the_start(world: World) -> tuple[int, list[int]]:
    return world.run(sys.executable, "-c", _CHROOT, str(world.base / "root")), []


def child_with_another_root(world: World) -> tuple[int, list[int]]:
    return child(world, _PIVOT)


@pytest.mark.parametrize(
    "leave", [chrooted_child, chrooted_from_the_start, child_with_another_root]
)
def test_who_leaves_its_mounts_behind_is_still_its_containers(
    world: World, leave: Callable[[World], tuple[int, list[int]]]
) -> None:
    pid, others = leave(world)
    assert "aaa/limits" not in Path(f"/proc/{pid}/mountinfo").read_text()
    for each in (pid, *others):
        world.put_into_pod(each)

    found = world.attribution.of([pid], HELD)[pid]

    assert (found.allocation_id, found.source) == ("aaa", AttributionSource.CONTAINER)
    again = world.attribution.look(pid, HELD)
    assert again is not None and again.identity == found.identity
