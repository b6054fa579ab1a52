"""What a client of MPS is answered, in whatever order its halves come."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from deviceplugin.model.allocations import Allocation
from deviceplugin.model.concurrency import Concurrency
from deviceplugin.model.units import Half, unit_name
from deviceplugin.policy.limits.asked import CONTAINER_PIPE_DIRECTORY, asked_limits
from deviceplugin.store.mps_paths import pipe_directory
from deviceplugin.store.slice_files import SliceStore
from libvgpu.limits import ComputeMode, Family

GIB = 1 << 30
UUID = "GPU-1"
CLIENT = {
    "CUDA_MPS_PIPE_DIRECTORY": CONTAINER_PIPE_DIRECTORY,
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4096M",
}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SliceStore:
    monkeypatch.setattr("libvgpu.artifacts.shim_path", lambda: Path("/nowhere/libvgpu.so"))
    monkeypatch.setattr("libvgpu.artifacts.build_id", lambda path: "ab12")
    return SliceStore(tmp_path / "r", tmp_path / "s")


def merged(
    store: SliceStore, core: int, first: Half, family: Family = Family.MPS
) -> tuple[Mapping[str, str], Mapping[str, str], list[str]]:
    """Returns variables and mounts of a container, and what its two answers disagree in."""
    names = {
        half: tuple(unit_name(UUID, half, n) for n in range(count))
        for half, count in ((Half.CORE, core), (Half.MEMORY, 4))
    }
    concurrency = Concurrency.MPS if family is Family.VGPU else Concurrency.TIME_SLICES
    opened = Allocation(
        "id", family, UUID, GIB, shim_build="ab12", concurrency=concurrency
    ).with_half(first, names[first], 1.0)
    whole = replace(opened, core=names[Half.CORE], memory=names[Half.MEMORY])
    envs: dict[str, str] = {}
    mounts: dict[str, str] = {}
    conflicts = []
    for allocation, half in ((opened, first), (whole, first.other)):
        answer = store.answer(allocation, half, asked_limits(allocation, ComputeMode.STRICT))
        for into, more in (
            (envs, answer.envs),
            (mounts, {m.container_path: m.host_path for m in answer.mounts}),
        ):
            conflicts += [key for key, value in more.items() if into.get(key, value) != value]
            into.update(more)
    mps = {name: value for name, value in envs.items() if name.startswith("CUDA_MPS")}
    return mps, mounts, conflicts


@pytest.mark.parametrize("first", Half)
def test_a_client_is_told_all_of_it(store: SliceStore, first: Half) -> None:
    envs, mounts, conflicts = merged(store, 30, first)

    assert envs == CLIENT
    assert mounts[CONTAINER_PIPE_DIRECTORY] == str(pipe_directory(store.run_dir, UUID))
    assert mounts["/dev/shm"] == "/dev/shm"  # where clients and server share memory
    assert conflicts == []


@pytest.mark.parametrize("first", Half)
def test_who_has_the_gpu_whole_is_told_nothing_of_mps(store: SliceStore, first: Half) -> None:
    envs, mounts, conflicts = merged(store, 100, first)
    assert envs == {}
    assert CONTAINER_PIPE_DIRECTORY not in mounts
    assert "/dev/shm" not in mounts
    assert conflicts == []


@pytest.mark.parametrize("first", Half)
@pytest.mark.parametrize("core", [30, 100])
def test_in_family_vgpu_mps_is_told_of_no_share_and_no_memory(
    store: SliceStore, core: int, first: Half
) -> None:
    envs, mounts, conflicts = merged(store, core, first, Family.VGPU)

    assert envs == {"CUDA_MPS_PIPE_DIRECTORY": CONTAINER_PIPE_DIRECTORY}
    assert mounts[CONTAINER_PIPE_DIRECTORY] == str(pipe_directory(store.run_dir, UUID))
    assert mounts["/dev/shm"] == "/dev/shm"
    assert conflicts == []


def test_memory_alone_makes_a_client_in_family_vgpu_only(store: SliceStore) -> None:
    memory = (unit_name(UUID, Half.MEMORY, 0),)
    for family, concurrency, is_client in (
        (Family.VGPU, Concurrency.MPS, True),
        (Family.VGPU, Concurrency.TIME_SLICES, False),
        (Family.MPS, Concurrency.TIME_SLICES, False),  # its GPU may yet be exclusive
    ):
        one = Allocation(
            "id", family, UUID, GIB, memory=memory, shim_build="ab12", concurrency=concurrency
        )
        answer = store.answer(one, Half.MEMORY, asked_limits(one, ComputeMode.STRICT))
        assert ("CUDA_MPS_PIPE_DIRECTORY" in answer.envs) is is_client
