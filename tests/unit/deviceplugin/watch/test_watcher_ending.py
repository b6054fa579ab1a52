"""Whom the watch ends where the policy says `terminate`, and whom not."""

import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from deviceplugin.model.agent_config import WatchPolicy
from deviceplugin.model.allocations import Owner
from deviceplugin.model.notices import EventReason
from deviceplugin.watch import procfs
from support.node.fake_proc import OTHER_UID, mount_line, pod_path
from support.node.watch_world import GIB, KNOWN, WatchWorld
from support.waiting import PATIENCE_S

pytestmark = pytest.mark.process

Victim = subprocess.Popen[bytes]
KILLED = EventReason.BYPASSING_PROCESS_KILLED


@pytest.fixture
def victim(world: WatchWorld) -> Iterator[Victim]:
    """A process where the policy says `terminate`."""
    world.watch.policy = WatchPolicy.TERMINATE
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def ended(process: Victim, within_s: float = 0.2) -> bool:
    try:
        return process.wait(within_s) == -signal.SIGKILL
    except subprocess.TimeoutExpired:
        return False


def test_terminate_ends_the_bypassing_process_alone(world: WatchWorld, victim: Victim) -> None:
    world.put(victim.pid, GIB)

    world.look(2)
    assert not ended(victim)
    world.look(2)

    assert ended(victim, PATIENCE_S)
    assert "process killed: it bypassed the shim" in world.messages
    (killed,) = [n for n in world.notices if n and n.reason is KILLED]
    assert f"process {victim.pid} " in killed.text and killed.text.endswith(", and was killed")
    assert killed.subject == Owner("ns", "pod-a", "c")
    assert world.watch.findings.ended == 1


CHANGES = {
    "another process has its pid": {"start": 2000},
    "it is in another pod": {"cgroup": pod_path(OTHER_UID)},
    "it only waits to be reaped": {"state": "Z"},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_what_has_changed_since_is_not_ended(
    world: WatchWorld,
    victim: Victim,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
) -> None:
    world.put(victim.pid, GIB)
    world.look(2)
    real = procfs.end

    def end(pid: int, is_still: object) -> bool:  # just before, the process becomes another
        world.put(victim.pid, GIB, **change)
        return real(pid, is_still)  # type: ignore[arg-type]

    monkeypatch.setattr(procfs, "end", end)
    world.look(1)

    assert not ended(victim)
    assert world.watch.findings.ended == 0


def test_a_new_name_does_not_save_it(world: WatchWorld, victim: Victim) -> None:
    for number in range(4):
        world.put(victim.pid, GIB, command=f"name-{number}")
        world.look(1)

    assert ended(victim, PATIENCE_S)


@pytest.mark.parametrize("size", [0, 100])
def test_who_damages_its_usage_is_ended(world: WatchWorld, victim: Victim, size: int) -> None:
    world.write_ledger(GIB, victim.pid)
    world.put(victim.pid, GIB)
    world.look()
    assert not ended(victim)

    os.truncate(world.allocations / "a" / "usage", size)
    world.look(2)
    assert not ended(victim), "it is not steady yet"
    world.look(2)

    assert ended(victim, PATIENCE_S)


def test_who_left_its_mounts_behind_is_ended_as_its_container_is_known(
    world: WatchWorld, victim: Victim
) -> None:
    world.put(victim.pid, GIB, mounts="")
    mounts = mount_line("/allocations/a/limits")
    world.proc.put(KNOWN, cgroup=pod_path(), mounts=mounts)  # its shell, which uses no GPU

    world.look()

    assert ended(victim, PATIENCE_S)


def test_who_leaves_its_mounts_behind_while_it_is_looked_at_is_ended(
    world: WatchWorld, victim: Victim
) -> None:
    world.put(victim.pid, GIB)
    world.look(2)

    world.put(victim.pid, GIB, mounts="")
    world.look(2)

    assert ended(victim, PATIENCE_S)


def test_who_only_its_pod_speaks_for_is_not_ended(world: WatchWorld, victim: Victim) -> None:
    world.put(victim.pid, GIB, mounts="")

    world.look(6)

    assert [each.pid for each in world.watch.findings.bypassing] == [victim.pid]
    assert world.charged() == GIB
    assert not ended(victim)


def test_a_process_of_no_allocation_is_never_ended(world: WatchWorld, victim: Victim) -> None:
    world.put(victim.pid, GIB, name="")

    world.look(6)

    assert [each.pid for each in world.watch.findings.foreign] == [victim.pid]
    assert not ended(victim)
