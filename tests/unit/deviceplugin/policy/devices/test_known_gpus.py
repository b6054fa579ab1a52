"""Which GPUs count when some come, go, fail, are replaced or are cut into other MIG devices."""

from collections.abc import Callable, Collection
from dataclasses import replace

import pytest

from deviceplugin.model.gpus import UNKNOWN_INDEX, Gpu, GpuListing, MigPart, SickGpu
from deviceplugin.policy.devices.known_gpus import KnownGpus, devices, known_now, left_out

GIB = 1 << 30


def gpu(index: int, uuid: str, *parts: Gpu) -> Gpu:
    return Gpu(index, uuid, "test", GIB, is_mig_enabled=bool(parts), mig_devices=parts)


def part(number: int, uuid: str, parent: str = "A", index: int = 0) -> Gpu:
    return Gpu(index, uuid, "MIG", GIB, mig=MigPart(parent, number, "1g.5gb", number, 0))


A, B, C = gpu(0, "A"), gpu(1, "B"), gpu(2, "C")


def held(*uuids: str) -> Callable[[str], bool]:
    return lambda uuid: uuid in uuids


NOBODY = held()


def indexes(known: KnownGpus) -> list[tuple[int, str]]:
    return [(gpu.index, gpu.uuid) for gpu in known.here]


def test_what_is_listed_as_before_stays() -> None:
    before = KnownGpus((A, B))

    assert known_now(before, GpuListing((A, B)), NOBODY) == before


def test_a_gpu_that_comes_is_here() -> None:
    found = known_now(KnownGpus((A,)), GpuListing((A, B)), NOBODY)

    assert found == KnownGpus((A, B))


def test_what_is_said_anew_of_a_gpu_holds() -> None:
    newer = replace(A, driver="590.1")

    assert known_now(KnownGpus((A,)), GpuListing((newer,)), NOBODY) == KnownGpus((newer,))


def test_a_memory_that_was_told_once_stays_known() -> None:
    silent = replace(A, memory_bytes=0)

    assert known_now(KnownGpus((A,)), GpuListing((silent,)), NOBODY) == KnownGpus((A,))
    assert known_now(KnownGpus((silent,)), GpuListing((A,)), NOBODY) == KnownGpus((A,))


@pytest.mark.parametrize("sick", [(), (SickGpu(0, "A", "lost"),), (SickGpu(0, "", "lost"),)])
def test_a_gpu_that_goes_is_kept(sick: tuple[SickGpu, ...]) -> None:
    found = known_now(KnownGpus((A, B)), GpuListing((B,), sick), NOBODY)

    assert found == KnownGpus((A, B))
    assert left_out(found.here, GpuListing((B,), sick)) == {}


def test_the_others_keep_their_indexes_while_gpus_only_go() -> None:
    listing = GpuListing((replace(B, index=0), replace(C, index=1)))

    found = known_now(KnownGpus((A, B, C)), listing, NOBODY)

    assert indexes(found) == [(0, "A"), (1, "B"), (2, "C")]


def test_a_mig_device_keeps_the_index_of_its_gpu() -> None:
    before = gpu(1, "B", part(0, "MIG-b", "B", 1))
    now = gpu(0, "B", part(0, "MIG-b", "B", 0))

    found = known_now(KnownGpus((A, before)), GpuListing((now,)), NOBODY)

    assert found == KnownGpus((A, before))


def test_another_gpu_with_its_index_replaces_one() -> None:
    found = known_now(KnownGpus((A, B)), GpuListing((gpu(0, "N"), B)), NOBODY)

    assert indexes(found) == [(0, "N"), (1, "B")]
    assert found.replaced == ()


def test_a_replaced_gpu_is_kept_apart_while_containers_hold_it() -> None:
    listing = GpuListing((gpu(0, "N"), B))

    found = known_now(KnownGpus((A, B)), listing, held("A"))
    assert found.replaced == (A,)
    again = known_now(found, listing, held("A"))
    assert again == found
    assert known_now(again, listing, NOBODY).replaced == ()


def test_a_replaced_gpu_that_comes_back_is_here_and_not_replaced() -> None:
    found = known_now(KnownGpus((gpu(0, "N"),), (A,)), GpuListing((A, gpu(1, "N"))), held("A"))

    assert indexes(found) == [(0, "N"), (1, "A")]
    assert found.replaced == ()


def test_the_others_keep_their_indexes_when_one_goes_and_another_comes() -> None:
    listing = GpuListing((replace(B, index=0), gpu(1, "N")))

    found = known_now(KnownGpus((A, B)), listing, NOBODY)

    assert indexes(found) == [(0, "A"), (1, "B"), (2, "N")]
    assert [gpu.runtime_index for gpu in found.here] == [UNKNOWN_INDEX, 0, 1]


def test_a_gpu_that_comes_between_others_takes_no_index_of_theirs() -> None:
    listing = GpuListing((A, gpu(1, "N"), replace(B, index=2)))

    found = known_now(KnownGpus((A, B)), listing, NOBODY)

    assert indexes(found) == [(0, "A"), (1, "B"), (2, "N")]


def test_where_the_config_names_others_the_indexes_of_nvml_hold() -> None:
    listing = GpuListing((replace(B, index=0), replace(C, index=1)))
    before = known_now(KnownGpus((A, B, C)), listing, held("A"))

    found = known_now(before, listing, held("A"), keeps_indexes=False)

    assert indexes(found) == [(0, "B"), (1, "C")]
    assert [gpu.uuid for gpu in found.replaced] == ["A"]


def test_another_cut_of_a_gpu_holds_and_what_is_held_of_the_old_one_is_kept() -> None:
    before = gpu(0, "A", part(0, "MIG-0"), part(1, "MIG-1"))
    now = gpu(0, "A", part(0, "MIG-2"))

    found = known_now(KnownGpus((before,)), GpuListing((now,)), held("MIG-1"))

    assert found == KnownGpus((now,), (part(1, "MIG-1"),))


@pytest.mark.parametrize("reported", [("MIG-0",), ()])
def test_a_sick_mig_device_stays_in_its_gpu(reported: Collection[str]) -> None:
    before = gpu(0, "A", part(0, "MIG-0"), part(1, "MIG-1"))
    now = gpu(0, "A", part(1, "MIG-1"))
    sick = tuple(SickGpu(0, uuid, "lost") for uuid in reported)

    found = known_now(KnownGpus((before,)), GpuListing((now,), sick), NOBODY)

    assert found == KnownGpus((before if reported else now,))


def test_left_out_is_what_is_on_no_list() -> None:
    listing = GpuListing(
        (A,),
        (
            SickGpu(1, "", "does not answer"),
            SickGpu(2, "C", "no memory"),
            SickGpu(0, "MIG-9", "odd"),
            SickGpu(3, "D", "known"),
        ),
    )

    assert left_out((A, gpu(3, "D")), listing) == {
        "1": "does not answer",
        "2 (C)": "no memory",
        "0 (MIG-9)": "odd",
    }


def test_mig_devices_without_a_uuid_are_left_out_too() -> None:
    cut = gpu(0, "A", part(0, "MIG-0"))
    listing = GpuListing((cut,), (SickGpu(0, "", "1 fails"), SickGpu(0, "", "2 fails")))

    assert left_out((cut,), listing) == {"0": "1 fails; 2 fails"}


def test_devices_are_gpus_with_their_mig_devices() -> None:
    cut = gpu(0, "A", part(0, "MIG-0"), part(1, "MIG-1"))

    assert [each.uuid for each in devices((cut, B))] == ["A", "MIG-0", "MIG-1", "B"]
