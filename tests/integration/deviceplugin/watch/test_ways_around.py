"""Each way around the shim that we know of is named and, by policy, ended within 5 s.

A way is a real process on the simulated GPU, in the container of a slice. Next to it are an honest
process in the same container and one in another; neither is accused or ended. To the watch, a
program of another C library and one that calls the kernel driver itself are static programs.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deviceplugin.http.metrics import NodeCollector
from deviceplugin.model.agent_config import WatchPolicy
from deviceplugin.model.notices import EventReason
from deviceplugin.policy.devices.layout import Layout
from deviceplugin.watch.procfs import read_process
from libvgpu._native import ffi, lib
from libvgpu._sources import LIFE_SOURCE
from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.sim import Machine
from support import ROOT, Compile
from support.lines import next_line, tell
from support.node.watched import can_contain
from support.node.ways import WaysWorld
from support.shim.pid_namespaces import PROC_ABOVE
from support.waiting import wait_until
from vgpuctl.doctor import agent_checks

pytestmark = [
    pytest.mark.skipif(not can_contain(), reason="may not make mount namespaces"),
    pytest.mark.process,
]

GIB, MIB = 1 << 30, 1 << 20
LIMIT_BYTES = 4 * GIB
BYPASSED, DAMAGED = EventReason.SHIM_BYPASSED, EventReason.USAGE_DAMAGED
WITHOUT, BEYOND = "without the shim", "more than its slice"


@dataclass
class Programs:
    """What ways are made of: a static program, one that loads a library, and that library."""

    raw: Path
    loads: Path
    library: Path

    def loaded(self, how: str, size: int, *then: object) -> list[str]:
        """Returns the command that loads the library in a way, and then becomes another."""
        return [str(self.loads), how, str(self.library), str(size), *map(str, then)]


class Ways(WaysWorld):
    """The world with its programs."""

    programs: Programs
    honest: int

    def raw(self, *steps: str, size: int = GIB, before: Sequence[str] = ()) -> int:
        """Starts the static program."""
        return self.start([*before, str(self.programs.raw), str(size), *steps], shim=True)

    def with_driver(self, how: str, *before: str, shim: bool = True) -> int:
        """Starts the program that loads a library that loads the driver."""
        return self.start([*before, *self.programs.loaded(how, GIB)], shim=shim)

    @property
    def usage(self) -> Path:
        return self.allocations / "a" / "usage"


@pytest.fixture
def programs(compile_program: Compile) -> Programs:
    core = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "libvgpu/sim/core").glob("*.c"))
    driver = (f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1")
    return Programs(
        compile_program("beside_shim.c", *core, LIFE_SOURCE, flags=("-static", "-lm")),
        compile_program("around_shim.c"),
        compile_program("around_shim.c", flags=("-DLIBRARY", "-fPIC", "-shared", *driver)),
    )


@pytest.fixture
def world(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    machine: Machine,
    programs: Programs,
) -> Iterator[Ways]:
    world = Ways(tmp_path, monkeypatch, caplog, machine)
    world.programs = programs
    try:
        for name in ("a", "b"):
            world.add(name, LIMIT_BYTES, world.gpu)
        world.honest = world.start(programs.loaded("plain", GIB), shim=True)
        world.start(programs.loaded("plain", GIB), "b", shim=True)
        yield world
    finally:
        world.close()


def chrooted(world: Ways) -> None:
    (world.base / "root").mkdir()
    world.raw(f"chroot={world.base / 'root'}")


def cleaned_environment(world: Ways) -> None:
    keep = ("VGPU_SIM_MACHINE", "LD_LIBRARY_PATH")
    clean = ["env", "-i", *(f"{each}={world.environment[each]}" for each in keep)]
    world.with_driver("plain", "sh", "-c", '"$@"; true', "sh", *clean)


def copied_loader(world: Ways) -> None:
    loader = world.base / "copied-loader"
    shutil.copy("/lib64/ld-linux-x86-64.so.2", loader)
    world.with_driver("plain", str(loader), "--preload", "", shim=False)


def another_program_as_the_same_process(world: Ways) -> None:
    world.start(world.programs.loaded("plain", MIB, world.programs.raw, GIB), shim=True)


def slot_of(world: Ways, pid: int, start_time_ticks: int) -> None:
    """Writes a process into the ledger and holds its lock, as anybody in the container may."""
    image = bytearray(world.usage.read_bytes())
    file = ffi.from_buffer("unsigned char[]", image)
    header, slot = ffi.cast("struct vgpu_usage_header *", file), 9
    header.hi_slot = max(header.hi_slot, slot + 1)
    row = lib.usage_slot(file, slot)
    row.gen, row.pid, row.start_time_ticks = 1, pid, start_time_ticks
    world.usage.write_bytes(image)
    world.hold_lock(world.usage, lib.VGPU_LOCK_BASE + 2 * slot + lib.VGPU_LOCK_LIFE)


def restored(world: Ways) -> None:
    """A checkpoint puts it back with its pid, its memory and its locks, and not its start."""
    pid = world.raw()
    process = read_process(pid)
    assert process is not None
    slot_of(world, pid, process.start_time_ticks - 1000)


def written_in_by_itself(world: Ways) -> None:
    pid = world.raw(size=2 * LIMIT_BYTES)
    process = read_process(pid)
    assert process is not None
    slot_of(world, pid, process.start_time_ticks)


def totals_zeroed(world: Ways) -> None:
    """An honest program gets from the shim what its limit forbids."""
    world.start(world.programs.loaded("plain", 0), shim=True)
    program = world.started[-1]
    file = ffi.from_buffer("unsigned char[]", bytearray(world.usage.read_bytes()))
    at = int(ffi.cast("unsigned char *", lib.usage_device(file, 0)) - file)
    for _ in range(4):
        with open(world.usage, "r+b") as file:
            file.seek(at)
            file.write(bytes(16))
        tell(program, str(LIMIT_BYTES // 2))
        assert next_line(program) == "0"


WAYS: dict[str, tuple[Callable[[Ways], object], EventReason, str]] = {
    "no preload": (lambda w: w.with_driver("plain", shim=False), BYPASSED, WITHOUT),
    "vfork and exec with a cleaned environment": (cleaned_environment, BYPASSED, WITHOUT),
    "a static program: musl, raw calls": (lambda w: w.raw(), BYPASSED, WITHOUT),
    "dlmopen": (lambda w: w.with_driver("dlmopen"), BYPASSED, WITHOUT),
    "RTLD_DEEPBIND": (lambda w: w.with_driver("deepbind"), BYPASSED, WITHOUT),
    "a copied loader": (copied_loader, BYPASSED, WITHOUT),
    "another program as the same process": (another_program_as_the_same_process, BYPASSED, WITHOUT),
    "checkpoint and restore": (restored, BYPASSED, WITHOUT),
    "chroot": (chrooted, BYPASSED, WITHOUT),
    "a user namespace": (lambda w: w.raw("user-namespace"), BYPASSED, WITHOUT),
    "a PID namespace": (lambda w: w.raw(before=PROC_ABOVE), BYPASSED, WITHOUT),
    "a time namespace": (lambda w: w.raw(before=["unshare", "-T"]), BYPASSED, WITHOUT),
    "setuid": (lambda w: w.raw("uid"), BYPASSED, WITHOUT),
    "a traced process": (lambda w: w.raw("traced"), BYPASSED, WITHOUT),
    "a child": (lambda w: w.raw("child"), BYPASSED, WITHOUT),
    "a child that outlives its parent": (lambda w: w.raw("daemon"), BYPASSED, WITHOUT),
    "a process whose first thread has ended": (lambda w: w.raw("thread"), BYPASSED, WITHOUT),
    "usage emptied": (lambda w: os.truncate(w.usage, 0), DAMAGED, "bytes long"),
    "usage overwritten": (lambda w: w.usage.write_bytes(bytes(w.usage.stat().st_size)), DAMAGED,
                          "overwritten the header"),
    "usage forged: totals zeroed": (totals_zeroed, BYPASSED, BEYOND),
    "usage forged: writes itself in": (written_in_by_itself, BYPASSED, BEYOND),
}  # fmt: skip


def metrics(world: Ways) -> dict[str, float]:
    """Returns what `/metrics` says of the container."""
    service = SimpleNamespace(
        podresources_problem=None,
        allocations=lambda: [(w.allocation, w.limits) for w in world.watched()],
        state=SimpleNamespace(
            layout=Layout("nvidia.com", ()), unhealthy={}, held={}, left_out={}, driver_problem=""
        ),
    )
    store: Any = SimpleNamespace(directory=lambda name: world.allocations / name)
    collector = NodeCollector(
        service,  # type: ignore[arg-type]
        store,
        lambda: (True, "0" * 12),
        dict,
        lambda: world.watch.findings,
    )
    samples = [sample for family in collector.collect() for sample in family.samples]
    return {s.name: s.value for s in samples if s.labels.get("allocation") == "a"}


def doctor(world: Ways) -> str:
    """Returns what `vgpuctl doctor` says of the watch."""
    report: Any = SimpleNamespace(watch=world.watch.findings.shown())
    return "\n".join(finding.message for finding in agent_checks.watch(report))


@pytest.mark.parametrize(("go", "reason", "words"), WAYS.values(), ids=WAYS.keys())
def test_a_way_around_the_shim_is_named_and_ended_within_the_bar(
    world: Ways, go: Callable[[Ways], object], reason: EventReason, words: str
) -> None:
    before = set(world.pids())
    go(world)
    new = set(world.pids()) - before or {world.honest}

    for _ in world.ticks():
        told = [n for n in world.notices if n and n.reason is reason and words in n.text]
        if told:
            break
    assert told, world.messages
    assert told[0].subject == world.watched()[0].allocation.owner
    metric = (
        "vgpu_container_usage_damaged"
        if reason is DAMAGED
        else "vgpu_container_bypassing_processes"
    )
    assert metrics(world)[metric] >= 1
    assert words in doctor(world)

    world.watch.policy = WatchPolicy.TERMINATE
    for _ in world.ticks():
        pass
    wait_until(lambda: not new & set(world.pids()))
    assert set(world.pids()) == before - new
    assert not [n for n in world.notices if n and n.subject != told[0].subject]
