"""The files of a slice as its allocation changes: what is whole stays, what is missing comes
back."""

from dataclasses import replace
from pathlib import Path

import pytest

from deviceplugin.model.allocations import Allocation, Owner
from deviceplugin.policy.limits.asked import asked_limits
from deviceplugin.store.slice_files import SliceStore
from libvgpu._native import lib
from libvgpu.allocation_dirs import read_meta
from libvgpu.errors import DevicesDifferError, LayoutError
from libvgpu.limits import ComputeMode, ContainerLimits, Family
from libvgpu.region import read_limits

ID = "0123456789ab"
CORE = Allocation(ID, Family.VGPU, "GPU-1", 1 << 30, core=("GPU-1::c0",), changed_at=5.0)
PAIR = replace(CORE, memory=("GPU-1::m0",), changed_at=6.0)


def limits(allocation: Allocation) -> ContainerLimits:
    return asked_limits(allocation, ComputeMode.STRICT)


@pytest.fixture
def store(tmp_path: Path) -> SliceStore:
    store = SliceStore(tmp_path / "run", tmp_path / "state")
    store.prepare()
    store.put(CORE, limits(CORE))
    return store


def test_files_that_were_made_for_other_devices_are_kept_and_the_change_is_refused(
    store: SliceStore,
) -> None:
    inode = (store.directory(ID) / "limits").stat().st_ino
    other = replace(CORE, uuid="GPU-2", core=("GPU-2::c0",))

    with pytest.raises(DevicesDifferError, match="GPU-1"):
        store.put(other, limits(other))

    assert (store.directory(ID) / "limits").stat().st_ino == inode
    assert read_limits(store.directory(ID)).limits.devices[0].uuid == "GPU-1"


def test_files_of_a_later_layout_stay_until_the_container_starts_again(store: SliceStore) -> None:
    """As an agent finds them after a rollback."""
    path = store.directory(ID) / "limits"
    later = bytearray(path.read_bytes())
    later[8] = lib.VGPU_LAYOUT_VERSION + 1
    path.chmod(0o600)
    path.write_bytes(later)
    before = path.stat().st_ino, bytes(later)

    with pytest.raises(LayoutError, match="a layout version that this version does not know"):
        store.put(PAIR, limits(PAIR))
    assert (path.stat().st_ino, path.read_bytes()) == before

    (store.directory(ID) / "usage").write_bytes(later)  # nor does it know that
    store.put_back(replace(PAIR, shim_build=store.build), limits(PAIR))
    assert read_limits(store.directory(ID)).limits == limits(PAIR)


def test_a_second_half_changes_the_limits_and_not_since_when_it_is_there(
    store: SliceStore,
) -> None:
    before = store.put(PAIR, limits(PAIR))

    assert before is not None
    assert before.devices[0].memory_limit_bytes == 0
    assert read_meta(store.directory(ID)).created_at == 5.0
    assert store.put(PAIR, limits(PAIR)) is None


def test_whose_it_is_is_written_when_it_is_known_and_when_the_file_has_gone(
    store: SliceStore,
) -> None:
    known = replace(PAIR, owner=Owner("space", "pod", "main"))
    store.put(known, limits(known))
    assert read_meta(store.directory(ID)).pod == "pod"

    (store.directory(ID) / "meta.json").unlink()
    store.put(known, limits(known))

    assert read_meta(store.directory(ID)).pod == "pod"


def test_files_that_are_made_again_say_whose_they_are_and_since_when(store: SliceStore) -> None:
    before = read_meta(store.directory(ID))
    store.spare.fill()
    (store.directory(ID) / "usage").unlink()

    store.put(CORE, limits(CORE))

    assert read_meta(store.directory(ID)) == before
