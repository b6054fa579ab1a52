"""Allocations made again from the kubelet's checkpoint, and a sentence where it disagrees."""

from dataclasses import replace
from functools import partial

import pytest

from deviceplugin.model.allocations import Allocation, AllocationBook, Owner
from deviceplugin.model.concurrency import Concurrency
from deviceplugin.model.units import Half
from deviceplugin.policy.devices.layout import Layout
from deviceplugin.policy.pairing.implicit_units import complete_start
from deviceplugin.recovery.kubelet_checkpoint import KubeletEntry
from deviceplugin.recovery.kubelet_records import allocation_of, build_of, conflict
from deviceplugin.recovery.rebuild import Rebuilt, rebuild
from libvgpu.allocation_dirs import AllocationMeta
from libvgpu.limits import Family
from support.node.units import GIB, layout_of, names, shared_gpu

G0, G1, G2 = (f"GPU-{n}" for n in range(3))
LAYOUT = replace(layout_of(16, 16), gpus=(*layout_of(16, 16).gpus, shared_gpu(2, Family.MPS)))
META = AllocationMeta("x1", "vgpu", "kubelet", 70.5, "ns", "pod", "c0", memory_unit_bytes=GIB)


def entry(
    half: Half,
    units: tuple[str, ...],
    allocation: str = "x1",
    pod: str = "p1",
    container: str = "c0",
    family: str = "vgpu",
    build: str = "ab12",
) -> KubeletEntry:
    return KubeletEntry(
        pod,
        container,
        f"nvidia.com/{family}-{half}",
        units,
        {
            "/run/vgpu/limits": f"/somewhere/allocations/{allocation}/limits",
            f"/run/vgpu/lib/{build}/libvgpu.so": f"/var/lib/vgpu/lib/{build}/libvgpu.so",
        },
    )


def pair(allocation: str, uuid: str, core: int, memory: int, pod: str = "p1") -> list[KubeletEntry]:
    """Core units ``core``..+9 and memory units ``memory``..+1 of one GPU."""
    return [
        entry(Half.CORE, names(uuid, Half.CORE, range(core, core + 10)), allocation, pod),
        entry(Half.MEMORY, names(uuid, Half.MEMORY, (memory, memory + 1)), allocation, pod),
    ]


def remade(
    entries: list[KubeletEntry],
    *metas: AllocationMeta,
    known: tuple[Allocation, ...] = (),
    layout: Layout = LAYOUT,
) -> Rebuilt:
    by_id = {m.allocation_id: m for m in metas}
    return rebuild(entries, by_id, layout, partial(complete_start, layout), known)


def test_two_entries_of_a_container_are_one_holding_again() -> None:
    units = names(G1, Half.CORE, (10, 2, 9))

    found = remade(
        [entry(Half.MEMORY, names(G1, Half.MEMORY, (3,))), entry(Half.CORE, tuple(sorted(units)))],
        META,
    )

    assert found.problems == ()
    assert found.left_out == frozenset()
    assert found.allocations == (
        Allocation(
            "x1", Family.VGPU, G1, GIB, core=names(G1, Half.CORE, (2, 9, 10)),
            memory=names(G1, Half.MEMORY, (3,)), settled=True, changed_at=70.5,
            owner=Owner("ns", "pod", "c0"), shim_build="ab12",
        ),
    )  # fmt: skip


def test_clients_of_mps_are_known_by_what_they_have_mounted() -> None:
    by_time, client = pair("x1", G0, 0, 0), pair("x2", G0, 20, 4, "p2")
    client = [
        replace(each, mounts={**each.mounts, "/run/vgpu/mps": "/somewhere/pipe"}) for each in client
    ]
    of_mps = [
        replace(
            each,
            resource=each.resource.replace("vgpu", "mps"),
            mounts={**each.mounts, "/run/vgpu/mps": "/somewhere/pipe"},
        )
        for each in pair("x3", G2, 0, 0, "p3")
    ]

    found = remade([*by_time, *client, *of_mps])

    assert {h.allocation_id: h.concurrency for h in found.allocations} == {
        "x1": Concurrency.TIME_SLICES,
        "x2": Concurrency.MPS,
        "x3": Concurrency.TIME_SLICES,  # its family says it
    }


def test_of_several_whole_gpus_the_config_tells_the_concurrency() -> None:
    every = range(100)
    core = tuple(sorted(names(G0, Half.CORE, every) + names(G1, Half.CORE, every)))
    gpus = tuple(replace(shared, concurrency=Concurrency.MPS) for shared in LAYOUT.gpus[:2])

    for layout, expected in (
        (LAYOUT, Concurrency.TIME_SLICES),
        (replace(LAYOUT, gpus=gpus), Concurrency.MPS),
    ):
        (allocation,) = remade([entry(Half.CORE, core)], META, layout=layout).allocations
        assert allocation.concurrency is expected
        assert (allocation.uuid, allocation.core[0]) == (G0, f"{G0}::c0")
        assert allocation.core[-1] == f"{G1}::c99"


def test_after_a_reboot_nobody_knows_whose_it_is_and_the_unit_is_the_configs() -> None:
    (allocation,) = remade(pair("x1", G0, 0, 0)).allocations

    assert allocation.owner is None
    assert allocation.changed_at == 0.0
    assert allocation.memory_unit_bytes == GIB


def test_slices_of_a_sharing_that_has_changed_meanwhile_are_taken_over_too() -> None:
    gpus = [shared.gpu for shared in LAYOUT.gpus]
    wanted = replace(LAYOUT, gpus=(replace(LAYOUT.gpus[0], family=Family.MPS),))
    metas = {"x1": META, "x2": replace(META, allocation_id="x2", container="c0")}
    entries = [*pair("x1", G0, 0, 0), *pair("x2", G1, 0, 0, "p2"), *pair("x3", G1, 50, 8, "p3")]

    found = rebuild(entries, metas, wanted, lambda book, allocation: allocation, gpus=gpus)

    assert [(h.allocation_id, h.family) for h in found.allocations] == [
        ("x1", Family.VGPU),
        ("x2", Family.VGPU),
    ]
    (problem,) = found.problems
    assert "GPU GPU-1 is not shared now, and nobody knows how large" in problem


def test_the_unit_is_the_one_it_was_given_in() -> None:
    meta = replace(META, memory_unit_bytes=GIB // 2)
    entries = [
        entry(Half.CORE, names(G0, Half.CORE, (0,))),
        entry(Half.MEMORY, names(G0, Half.MEMORY, (30, 31))),
    ]

    (allocation,) = remade(entries, meta).allocations

    assert allocation.memory_unit_bytes == GIB // 2
    assert allocation.memory_bytes == GIB
    assert "has no memory unit 31 of 1073741824 bytes" in remade(entries).problems[0]


def test_core_alone_gets_back_its_share_of_memory_from_what_nobody_has() -> None:
    lone = entry(Half.CORE, names(G0, Half.CORE, range(25)), "lone", "p2")

    found = remade([lone, *pair("x1", G0, 50, 14)])

    allocation = next(h for h in found.allocations if h.allocation_id == "lone")
    assert allocation.implicit_units == names(G0, Half.MEMORY, (10, 11, 12, 13))
    assert allocation.settled
    assert found.problems == ()


def test_a_default_that_does_not_fit_any_more_is_told() -> None:
    lone = entry(Half.CORE, names(G0, Half.CORE, range(50)), "lone", "p2")
    rest = entry(Half.MEMORY, names(G0, Half.MEMORY, range(16)), "x1", "p1")

    found = remade([lone, rest, entry(Half.CORE, names(G0, Half.CORE, (60,)), "x1", "p1")])

    assert len(found.allocations) == 2
    (problem,) = found.problems
    assert problem.startswith("allocation lone of container c0 of pod p2 lacks a half: ")
    assert "0 are free" in problem


def test_an_init_container_and_a_later_one_share_units() -> None:
    entries = [
        *pair("init", G0, 0, 0),
        *pair("main", G0, 5, 1),  # five core units and one memory unit of the first
    ]
    old = replace(META, allocation_id="init", created_at=1.0)
    new = replace(META, allocation_id="main", created_at=2.0)

    for order in (entries, entries[::-1]):
        found = remade(order, old, new)
        assert found.problems == ()
        assert [h.allocation_id for h in found.allocations] == ["init", "main"]


def broken(name: str) -> list[KubeletEntry]:
    core = entry(Half.CORE, names(G0, Half.CORE, (0,)))
    memory = entry(Half.MEMORY, names(G0, Half.MEMORY, (0,)))
    return {
        "its halves are on different GPUs, GPU-0 and GPU-1": [
            core,
            replace(memory, units=names(G1, Half.MEMORY, (0,))),
        ],
        "it has parts of several GPUs, GPU-0 and GPU-1": [
            replace(core, units=names(G0, Half.CORE, (0,)) + names(G1, Half.CORE, (0,)))
        ],
        "GPU GPU-9 is not on this node": [
            replace(core, units=("GPU-9::c0",)),
            replace(memory, units=("GPU-9::m0",)),
        ],
        "it has units of both families": [core, replace(memory, resource="nvidia.com/mps-memory")],
        "it has core twice": [core, replace(core, container="c1")],
        "is not a unit of core": [replace(core, units=("GPU-0::c100",))],
        "GPU-0::m1 is not a unit of core": [replace(core, units=("GPU-0::m1",))],
        "GPU-0::c-1 is not a unit of core": [replace(core, units=("GPU-0::c-1",))],
        "GPU-0::c01 is not a unit of core": [replace(core, units=("GPU-0::c01",))],
        "nothing is not a unit of core": [replace(core, units=())],
        "mounts no /run/vgpu/limits": [replace(core, mounts={})],
        "has no memory unit 16 of": [replace(memory, units=names(G0, Half.MEMORY, (16,)))],
        "is of family mps now, and nobody knows": [replace(core, units=names(G2, Half.CORE, (1,)))],
    }[name]


@pytest.mark.parametrize(
    "sentence",
    [
        "its halves are on different GPUs, GPU-0 and GPU-1",
        "it has parts of several GPUs, GPU-0 and GPU-1",
        "GPU GPU-9 is not on this node",
        "it has units of both families",
        "it has core twice",
        "is not a unit of core",
        "GPU-0::m1 is not a unit of core",
        "GPU-0::c-1 is not a unit of core",
        "GPU-0::c01 is not a unit of core",
        "nothing is not a unit of core",
        "mounts no /run/vgpu/limits",
        "has no memory unit 16 of",
        "is of family mps now, and nobody knows",
    ],
)
def test_what_disagrees_is_told_and_left_out_and_the_rest_is_not(sentence: str) -> None:
    entries = broken(sentence)
    fine = pair("fine", G1, 40, 8, "p9")

    found = remade([*entries, *fine])

    (problem,) = found.problems
    assert sentence in problem
    assert "of pod p1" in problem
    assert [h.allocation_id for h in found.allocations] == ["fine"]
    assert found.left_out == {unit for e in entries for unit in e.units}


def test_a_gpu_of_another_family_now_is_known_by_the_run_directory() -> None:
    (allocation,) = remade([entry(Half.CORE, names(G2, Half.CORE, (1,)))], META).allocations

    assert (allocation.family, allocation.uuid, allocation.memory_unit_bytes) == (
        Family.VGPU,
        G2,
        GIB,
    )


def test_a_unit_of_two_pods_leaves_both_out() -> None:
    entries = [
        *pair("x1", G0, 0, 0, "p1"),
        *pair("x2", G0, 9, 4, "p2"),
        *pair("x3", G1, 0, 0, "p3"),
    ]

    found = remade(entries)

    assert [h.allocation_id for h in found.allocations] == ["x3"]
    assert sorted(found.problems) == [
        "allocation x1 of container c0 of pod p1 is left out: GPU-0::c9 are on record for p2 too",
        "allocation x2 of container c0 of pod p2 is left out: GPU-0::c9 are on record for p1 too",
    ]
    assert len(found.left_out) == 23


def test_what_our_own_checkpoint_names_is_never_contradicted() -> None:
    mine = Allocation("mine", Family.VGPU, G0, GIB, core=names(G0, Half.CORE, range(20)),
                   memory=names(G0, Half.MEMORY, (0,)), settled=True)  # fmt: skip
    entries = [
        *pair("ended", G0, 15, 4, "p1"),  # its pod has ended, and the kubelet has not written since
        *pair("missing", G1, 0, 0, "p2"),
    ]

    found = remade(entries, known=(mine,))

    assert [h.allocation_id for h in found.allocations] == ["missing"]
    (problem,) = found.problems
    assert "are on record for allocation mine of the agent too" in problem
    assert found.left_out.isdisjoint(mine.core)
    assert len(found.left_out) == 5 + 2


def test_a_known_holding_is_not_made_twice_and_lends_to_its_own_pod() -> None:
    init = remade(pair("init", G0, 0, 0)).allocations
    entries = [*pair("init", G0, 0, 0), *pair("main", G0, 5, 1)]

    found = remade(entries, known=init)

    assert [h.allocation_id for h in found.allocations] == ["main"]
    assert found.problems == ()


def test_borrowed_units_of_a_known_holding_are_not_given_again() -> None:
    lone = Allocation("lone", Family.VGPU, G0, GIB, core=names(G0, Half.CORE, range(10)),
                   implicit_units=names(G0, Half.MEMORY, (15,)), settled=True)  # fmt: skip

    found = remade(
        [entry(Half.CORE, names(G0, Half.CORE, range(50, 60)), "x2", "p2")], known=(lone,)
    )

    assert found.allocations[0].implicit_units == names(G0, Half.MEMORY, (14,))
    book = AllocationBook.of((lone, *found.allocations))
    assert book.withdrawn() == set(names(G0, Half.MEMORY, (14, 15)))


def test_other_resources_and_a_meta_of_another_container_say_nothing() -> None:
    other = replace(pair("x9", G0, 0, 0)[0], resource="nvidia.com/gpu", units=("GPU-0",))
    meta = replace(META, container="another")

    found = remade([other, *pair("x1", G0, 0, 0)], meta)

    assert len(found.allocations) == 1
    assert found.allocations[0].owner is None
    assert found.problems == ()


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/run/vgpu/limits",
        "/a/allocations/../limits",
        "/a/allocations/x y/limits",
        "/a/allocations//limits",
    ],
)
def test_a_path_that_is_no_allocations_names_none(path: str) -> None:
    assert allocation_of(KubeletEntry("p", "c", "r", (), {"/run/vgpu/limits": path})) is None


def test_the_build_is_told_by_the_library() -> None:
    assert build_of(entry(Half.CORE, (), build="00ff")) == "00ff"
    assert build_of(KubeletEntry("p", "c", "r", (), {"/run/vgpu/lib/x": "/y"})) == ""


def test_a_record_of_whole_slices_is_no_conflict() -> None:
    entries = [*pair("x1", G0, 0, 0), *pair("x2", G0, 10, 2, pod="p2")]

    assert conflict(entries, "x1") is None
    assert conflict(entries, "unknown") is None


def test_init_containers_that_share_a_slice_are_told_from_the_record() -> None:
    """podresources shows neither of them: the first asks for core alone, the second for a pair."""
    lone, mixed, memory = (
        entry(half, names(G0, half, (number,)), allocation, container=container)
        for half, number, allocation, container in (
            (Half.CORE, 0, "x1", "init-0"),
            (Half.CORE, 1, "x2", "init-1"),
            (Half.MEMORY, 0, "x1", "init-1"),
        )
    )

    assert "went to different containers, init-0 and init-1" in str(conflict([lone, memory], "x1"))
    for allocation in ("x1", "x2"):
        assert "parts of the allocations x1 and x2" in str(conflict([mixed, memory], allocation))
