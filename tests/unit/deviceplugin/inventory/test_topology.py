"""Which free GPUs lie closest to each other."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deviceplugin.inventory.subsets import EXACT_PLACES
from deviceplugin.inventory.topology import closeness, closest
from deviceplugin.model.gpus import Gpu

NVLINKED = closeness(12, 50)
SWITCH, NODE, SYSTEM = (closeness(0, level) for level in (10, 40, 50))

Table = list[list[int]]  # closeness of GPUs by index


def gpus_of(table: Table) -> list[Gpu]:
    return [
        Gpu(a, f"G{a}", "test", 1, closeness={f"G{b}": near for b, near in enumerate(row) if near})
        for a, row in enumerate(table)
    ]


def table_of(count: int, *levels: tuple[int, int]) -> Table:
    """GPUs in groups; each level is (GPUs of a group, closeness within it), and the first wins."""

    def near(a: int, b: int) -> int:
        return next((value for size, value in levels if a // size == b // size), SYSTEM)

    return [[0 if a == b else near(a, b) for b in range(count)] for a in range(count)]


def only(table: Table, *indexes: int) -> list[Gpu]:
    gpus = gpus_of(table)
    return [gpus[index] for index in indexes]


def indexes(uuids: tuple[str, ...]) -> list[int]:
    return [int(uuid[1:]) for uuid in uuids]


def inside(table: Table, chosen: tuple[int, ...]) -> int:
    return sum(table[a][b] for a, b in itertools.combinations(chosen, 2))


def torn(table: Table, chosen: tuple[int, ...], free: list[int]) -> int:
    return sum(table[a][b] for a in chosen for b in free if b not in chosen)


def brute_force(table: Table, free: list[int], count: int, required: list[int]) -> tuple[int, ...]:
    """The definition, word by word."""
    sets = [s for s in itertools.combinations(free, count) if set(required) <= set(s)]
    return min(sets, key=lambda s: (-inside(table, s), torn(table, s, free), s))


# ---- the scale -----------------------------------------------------------------------------------


def test_the_scale_goes_from_nvlink_over_pcie_to_numa() -> None:
    levels = [closeness(0, level) for level in (0, 10, 20, 30, 40, 50)]

    assert closeness(18, 50) > closeness(12, 0) > closeness(1, 50) > levels[0]
    assert levels == sorted(levels, reverse=True)
    assert min(levels) > 0


def test_numa_nodes_count_where_nothing_better_is_known() -> None:
    assert closeness(0, None, (0, 0)) == closeness(0, 40)
    assert closeness(0, None, (0, 1)) == closeness(0, 50)
    assert closeness(0, None, (0, None)) == closeness(0, None) == 0
    assert closeness(0, 10, (0, 1)) == closeness(0, 10)


# ---- shapes --------------------------------------------------------------------------------------


def test_unknown_is_farthest_and_no_error() -> None:
    table = table_of(4, (4, 0))
    table[2][3] = table[3][2] = SYSTEM

    assert indexes(closest(gpus_of(table), 2)) == [2, 3]
    assert indexes(closest([Gpu(3, "G3", "t", 1), Gpu(1, "G1", "t", 1)], 1)) == [1]


def test_what_one_side_knows_counts() -> None:
    gpus = [Gpu(i, f"G{i}", "t", 1) for i in range(3)]
    gpus[2] = Gpu(2, "G2", "t", 1, closeness={"G1": SWITCH})

    assert indexes(closest(gpus, 2)) == [1, 2]


SIXTEEN = table_of(16, (2, SWITCH), (4, NODE))
ISLANDS = table_of(16, (8, NVLINKED))
BRIDGES = table_of(16, (2, NVLINKED), (4, SWITCH), (8, NODE))


@pytest.mark.parametrize("table", [SIXTEEN, ISLANDS, BRIDGES], ids=["pcie", "islands", "bridges"])
@pytest.mark.parametrize("taken", [(), (0, 5), (1, 2, 9, 15)], ids=str)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 8, 12])
def test_sixteen_gpus_in_shapes_that_are_built_are_searched_without_loss(
    table: Table, count: int, taken: tuple[int, ...]
) -> None:
    free = [index for index in range(16) if index not in taken]

    found = tuple(indexes(closest(only(table, *free), count)))

    if count <= 4:
        assert found == brute_force(table, free, count, [])
    else:  # the definition word by word takes long
        most = max(inside(table, chosen) for chosen in itertools.combinations(free, count))
        assert inside(table, found) == most


# ---- against the definition ----------------------------------------------------------------------


@st.composite
def tables(draw: st.DrawFn, least: int, most: int) -> Table:
    count = draw(st.integers(least, most))
    table = [[0] * count for _ in range(count)]
    for a, b in itertools.combinations(range(count), 2):
        table[a][b] = table[b][a] = draw(st.sampled_from([0, SYSTEM, NODE, SWITCH, NVLINKED]))
    return table


@st.composite
def requests(draw: st.DrawFn, least: int, most: int) -> tuple[Table, list[int], int, list[int]]:
    table = draw(tables(least, most))
    everyone = list(range(len(table)))
    free = sorted(draw(st.sets(st.sampled_from(everyone), min_size=least)))
    count = draw(st.integers(1, len(free)))
    required = sorted(draw(st.sets(st.sampled_from(free), max_size=count)))
    return table, free, count, required


@given(requests(1, 9), st.randoms())
def test_few_gpus_are_searched_exactly(
    request: tuple[Table, list[int], int, list[int]], order: random.Random
) -> None:
    table, free, count, required = request
    gpus = only(table, *free)
    order.shuffle(gpus)

    found = closest(gpus, count, [f"G{index}" for index in required])

    assert tuple(indexes(found)) == brute_force(table, free, count, required)


@settings(max_examples=40)
@given(requests(EXACT_PLACES + 1, EXACT_PLACES + 3))
def test_among_many_no_swap_of_one_gpu_would_help(
    request: tuple[Table, list[int], int, list[int]],
) -> None:
    table, free, count, required = request
    gpus = only(table, *free)
    must = [f"G{index}" for index in required]

    found = tuple(indexes(closest(gpus, count, must)))

    assert found == tuple(indexes(closest(gpus[::-1], count, must)))
    assert len(set(found)) == count
    assert set(required) <= set(found) <= set(free)
    for old in set(found) - set(required):
        for new in set(free) - set(found):
            swapped = tuple(sorted({*found, new} - {old}))
            assert inside(table, swapped) <= inside(table, found)


@pytest.mark.parametrize("count", [2, 4, 8])
@pytest.mark.parametrize("taken", [(), (0, 5), (1, 2, 9, 15)], ids=str)
def test_twenty_gpus_by_pairs_and_fours_are_searched_without_loss(
    count: int, taken: tuple[int, ...]
) -> None:
    table = table_of(20, (2, SWITCH), (4, NODE))
    free = [index for index in range(20) if index not in taken]
    assert len(free) > EXACT_PLACES or taken

    found = tuple(indexes(closest(only(table, *free), count)))

    pairs = count // 2  # whole fours first, there are enough of them
    assert inside(table, found) == sum(
        SWITCH if a // 2 == b // 2 else NODE if a // 4 == b // 4 else SYSTEM
        for a, b in itertools.combinations(range(2 * pairs), 2)
    )


@pytest.mark.parametrize(
    ("count", "must", "said"),
    [
        (4, (), "4 of 3 GPUs are wanted"),
        (1, ("G0", "G1"), "2 of them certain"),
        (2, ("G9",), "G9 must be included and is not among the GPUs"),
    ],
)
def test_what_cannot_be_is_refused(count: int, must: tuple[str, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        closest(gpus_of(table_of(3)), count, must)


def test_nothing_may_be_asked_for() -> None:
    assert closest([], 0) == ()
    assert closest(gpus_of(SIXTEEN), 0) == ()
