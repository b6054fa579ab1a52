"""What a container does to its files to keep others from them, and what the store makes of it."""

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from deviceplugin.model.allocations import Allocation
from deviceplugin.policy.limits.asked import asked_limits
from deviceplugin.store.slice_files import SliceStore
from libvgpu import slices
from libvgpu.arbitration import Arbiter
from libvgpu.errors import RegionBusyError, RegionUnknownError
from libvgpu.ledger_view import damage, read_ledger
from libvgpu.limits import ComputeMode, ContainerLimits, Family
from libvgpu.region import read_limits, read_usage, write_limits
from support.shim.hostile import lease
from support.waiting import wait_until

pytestmark = pytest.mark.process

OPENAT = 257  # on x86-64
ID = "0123456789ab"
CORE = Allocation(ID, Family.VGPU, "GPU-1", 1 << 30, core=("GPU-1::c0",), changed_at=5.0)
PAIR = replace(CORE, memory=("GPU-1::m0",), changed_at=6.0)


def limits(allocation: Allocation) -> ContainerLimits:
    return asked_limits(allocation, ComputeMode.STRICT)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SliceStore]:
    """A store of an agent that has just begun, with the files of one before."""
    before = SliceStore(tmp_path / "run", tmp_path / "state")
    before.prepare()
    before.put(CORE, limits(CORE))
    before.held.close()
    store = SliceStore(tmp_path / "run", tmp_path / "state")
    store.prepare()
    yield store
    store.held.close()


def test_a_leased_limits_is_busy_and_neither_damaged_nor_made_again(store: SliceStore) -> None:
    path = store.directory(ID) / "limits"
    inode = path.stat().st_ino
    with lease(path) as attacker:
        assert attacker.said == "ready"

        assert store.put(CORE, limits(CORE)) is None, "there is nothing to write"
        with pytest.raises(RegionBusyError, match="lease"):
            store.put(PAIR, limits(PAIR))

        assert path.stat().st_ino == inode
        assert read_limits(path.parent).limits == limits(CORE)
        with pytest.raises(RegionBusyError):
            write_limits(path.parent, limits(PAIR))
        with Arbiter() as arbiter, pytest.raises(RegionBusyError):
            arbiter.add(path.parent, 0)

    wait_until(lambda: not store.held.is_busy(path))
    assert store.put(PAIR, limits(PAIR)) == limits(CORE)
    assert path.stat().st_ino == inode
    with lease(path) as attacker:
        assert attacker.said.startswith("refused:")


def is_waiting_in_open() -> bool:
    """Returns whether the kernel has a thread for a held file wait in `open`."""
    threads = [each for each in threading.enumerate() if each.name == "held file"]
    calls = [Path(f"/proc/self/task/{t.native_id}/syscall").read_text().split() for t in threads]
    return any(call[0] == str(OPENAT) for call in calls)


def test_a_lease_is_waited_for_where_it_cannot_be_renewed(store: SliceStore) -> None:
    path = store.directory(ID) / "limits"
    with lease(path, renew="told") as attacker:
        with pytest.raises(RegionBusyError):
            store.put(PAIR, limits(PAIR))
        wait_until(is_waiting_in_open)

        attacker.go_on()

        assert attacker.word().startswith("refused:")
    wait_until(lambda: not store.held.is_busy(path))
    store.put(PAIR, limits(PAIR))
    assert read_limits(path.parent).limits == limits(PAIR)


def test_a_lease_for_writing_is_busy_to_who_reads(store: SliceStore) -> None:
    directory = store.directory(ID)
    for name, read in (("limits", read_limits), ("usage", read_usage), ("usage", read_ledger)):
        with lease(directory / name, "F_WRLCK") as attacker:
            assert attacker.said == "ready"

            with pytest.raises(RegionBusyError, match="lease"):
                read(directory)
            (found,) = slices.read_slices(store.run_dir)
            assert (found.state, found.usage) == (slices.BUSY, None)

    with lease(directory / "usage", "F_WRLCK"):
        assert store.running(ID), "somebody has the lease"
        assert store.sweep(set()) == []
        assert damage(directory, ID) == "has a lease on its usage"
    assert damage(directory, ID) == ""


def test_a_library_that_is_leased_is_replaced_for_those_who_start_now(tmp_path: Path) -> None:
    before = SliceStore(tmp_path / "run", tmp_path / "state")
    before.prepare()
    before.held.close()
    library = before.builds.directory(before.build) / "libvgpu.so"
    content, inode = library.read_bytes(), library.stat().st_ino
    with lease(library, "F_WRLCK") as attacker:
        assert attacker.said == "ready"

        store = SliceStore(tmp_path / "run", tmp_path / "state")
        store.prepare()

        assert library.stat().st_ino != inode
        assert library.read_bytes() == content
    (before_it,) = library.parent.glob("libvgpu.so.*")
    assert before_it.stat().st_ino == inode, "containers that run have this one"
    wait_until(lambda: not store.held.is_busy(before_it))
    for path in (library, before_it):
        with lease(path, "F_WRLCK") as attacker:
            assert attacker.said.startswith("refused:")
    store.held.close()


def test_what_was_removed_is_let_go(store: SliceStore) -> None:
    store.hold([ID])
    path = store.directory(ID) / "limits"
    kept = os.open(path, os.O_RDONLY)

    store.remove(ID)

    with lease(Path(f"/proc/{os.getpid()}/fd/{kept}")) as attacker:
        assert attacker.said == "ready", "nobody has it open for writing any more"
    os.close(kept)


def test_files_are_left_as_they_are_once_nothing_is_held_any_more(store: SliceStore) -> None:
    inode = (store.directory(ID) / "limits").stat().st_ino
    store.held.close()

    with pytest.raises(RegionUnknownError, match="the agent ends"):
        store.put(PAIR, limits(PAIR))

    assert (store.directory(ID) / "limits").stat().st_ino == inode
    assert read_limits(store.directory(ID)).limits == limits(CORE)
