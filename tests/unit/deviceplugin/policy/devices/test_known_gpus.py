"""Which GPUs count when some come, go, fail, are replaced or are cut into other MIG devices."""

from collections.abc import Callable
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
NEW = gpu(0, "N")


def indexes(known: KnownGpus) -> list[tuple[int, str]]:
    return [(gpu.index, gpu.uuid) for gpu in known.here]


def at(*gpus: Gpu) -> tuple[Gpu, ...]:
    """Returns GPUs with the indexes 0, 1, …"""
    return tuple(replace(each, index=n) for n, each in enumerate(gpus))


SILENT, NEWER = replace(A, memory_bytes=0), replace(A, driver="590.1")
OF_B = gpu(1, "B", part(0, "MIG-b", "B", 1))
CUT = gpu(0, "A", part(0, "MIG-0"), part(1, "MIG-1"))
CUT_ANEW, LESS = gpu(0, "A", part(0, "MIG-2")), gpu(0, "A", part(1, "MIG-1"))
Gpus = tuple[Gpu, ...]
#: What is known, what NVML lists, what is known then.
FOUND: dict[str, tuple[Gpus, Gpus, Gpus]] = {
    "as before": ((A, B), (A, B), (A, B)),
    "one comes": ((A,), (A, B), (A, B)),
    "new values of a known GPU replace the old ones": ((A,), (NEWER,), (NEWER,)),
    "a memory that was told once stays known": ((A,), (SILENT,), (A,)),
    "a memory that is told becomes known": ((SILENT,), (A,), (A,)),
    "others keep their indexes while GPUs only go": ((A, B, C), at(B, C), (A, B, C)),
    "a MIG device keeps the index of its GPU": (
        (A, OF_B),
        (gpu(0, "B", part(0, "MIG-b", "B", 0)),),
        (A, OF_B),
    ),
    "another with its index replaces one": ((A, B), (NEW, B), (NEW, B)),
    "one goes and another comes": ((A, B), at(B, NEW), at(A, B, NEW)),
    "one that comes between others": (
        (A, B),
        at(A, NEW, B),
        at(A, B, NEW),
    ),
    "another cut": ((CUT,), (CUT_ANEW,), (CUT_ANEW,)),
    "a MIG device that is on no list": ((CUT,), (LESS,), (LESS,)),
}


@pytest.mark.parametrize(("before", "listed", "here"), FOUND.values(), ids=FOUND.keys())
def test_what_was_known_and_what_is_listed_make_what_is_known(
    before: Gpus, listed: Gpus, here: Gpus
) -> None:
    assert known_now(KnownGpus(before), GpuListing(listed), NOBODY) == KnownGpus(here)


def test_a_gpu_that_is_not_listed_any_more_has_no_index_of_nvmls() -> None:
    found = known_now(KnownGpus((A, B)), GpuListing(at(B, NEW)), NOBODY)

    assert [gpu.runtime_index for gpu in found.here] == [UNKNOWN_INDEX, 0, 1]


@pytest.mark.parametrize("sick", [(), (SickGpu(0, "A", "lost"),), (SickGpu(0, "", "lost"),)])
def test_a_gpu_that_goes_is_kept(sick: tuple[SickGpu, ...]) -> None:
    found = known_now(KnownGpus((A, B)), GpuListing((B,), sick), NOBODY)

    assert found == KnownGpus((A, B))
    assert left_out(found.here, GpuListing((B,), sick)) == {}


def test_a_replaced_gpu_is_kept_apart_while_containers_hold_it() -> None:
    listing = GpuListing((NEW, B))

    found = known_now(KnownGpus((A, B)), listing, held("A"))
    assert found.replaced == (A,)
    again = known_now(found, listing, held("A"))
    assert again == found
    assert known_now(again, listing, NOBODY).replaced == ()


def test_a_replaced_gpu_that_comes_back_is_here_and_not_replaced() -> None:
    found = known_now(KnownGpus((NEW,), (A,)), GpuListing(at(A, NEW)), held("A"))

    assert found == KnownGpus(at(NEW, A))


def test_where_the_config_names_others_the_indexes_of_nvml_hold() -> None:
    listing = GpuListing(at(B, C))
    before = known_now(KnownGpus((A, B, C)), listing, held("A"))

    found = known_now(before, listing, held("A"), keeps_indexes=False)

    assert indexes(found) == [(0, "B"), (1, "C")]
    assert [gpu.uuid for gpu in found.replaced] == ["A"]


def test_what_is_held_of_an_old_cut_is_kept() -> None:
    found = known_now(KnownGpus((CUT,)), GpuListing((CUT_ANEW,)), held("MIG-1"))

    assert found == KnownGpus((CUT_ANEW,), (part(1, "MIG-1"),))


def test_a_sick_mig_device_stays_in_its_gpu() -> None:
    listing = GpuListing((LESS,), (SickGpu(0, "MIG-0", "lost"),))

    assert known_now(KnownGpus((CUT,)), listing, NOBODY) == KnownGpus((CUT,))


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
