"""How much a container has besides its ledger: what is beyond doubt, steady, and no more."""

from dataclasses import replace

from deviceplugin.watch.unaccounted_memory import (
    MIB,
    STEADY_S,
    Held,
    Steady,
    excess_bytes,
    next_charge,
    reserve_bytes,
)

GIB = 1 << 30
HONEST = Held(
    nvml_bytes=4 * GIB,
    ledger_bytes=4 * GIB,
    slice_bytes=8 * GIB,
    context_bytes=512 * MIB,
    known_processes=1,
)


def excess(held: Held, used_bytes: int | None = None) -> int:
    return excess_bytes({"a": held}, used_bytes)["a"]


def test_what_the_driver_rounds_and_loads_is_reserved() -> None:
    reserve = reserve_bytes(HONEST)

    assert reserve == 4 * MIB + 64 * MIB + 64 * MIB  # blocks, an eighth of a context, a 64th
    assert excess(replace(HONEST, nvml_bytes=4 * GIB + reserve)) == 0
    assert excess(replace(HONEST, nvml_bytes=4 * GIB + reserve + 3 * MIB + 5)) == 3 * MIB
    assert reserve_bytes(replace(HONEST, context_bytes=0)) == reserve  # nobody knows: 64 MiB


def test_a_process_that_the_ledger_does_not_know_has_no_reserve() -> None:
    assert excess(replace(HONEST, nvml_bytes=GIB, ledger_bytes=0, known_processes=0)) == GIB


def test_less_than_the_ledger_says_is_no_excess() -> None:
    assert excess(replace(HONEST, nvml_bytes=GIB)) == 0


def test_a_ledger_hides_no_more_than_the_slice() -> None:
    forged = replace(HONEST, nvml_bytes=12 * GIB, ledger_bytes=1 << 41)

    assert excess(forged) == 4 * GIB - reserve_bytes(forged)


def test_of_a_ledger_that_cannot_be_read_the_whole_slice_is_believed() -> None:
    unreadable = replace(HONEST, ledger_bytes=None, known_processes=0)

    assert excess(replace(unreadable, nvml_bytes=8 * GIB)) == 0
    assert excess(replace(unreadable, nvml_bytes=10 * GIB)) > GIB


def test_memory_that_a_driver_counts_twice_is_no_excess() -> None:
    twice = replace(HONEST, nvml_bytes=8 * GIB, known_processes=2)

    assert excess(twice, used_bytes=4 * GIB + 300 * MIB) <= 300 * MIB
    assert excess(twice, used_bytes=8 * GIB) > 3 * GIB


def test_a_forged_ledger_hides_nothing_of_a_neighbour() -> None:
    liar = replace(HONEST, nvml_bytes=0, ledger_bytes=8 * GIB)
    bypasser = replace(HONEST, nvml_bytes=4 * GIB, ledger_bytes=0, known_processes=0)

    assert excess_bytes({"liar": liar, "b": bypasser}, 4 * GIB) == {"liar": 0, "b": 4 * GIB}


def test_only_what_was_there_all_the_time_is_steady() -> None:
    steady = Steady()

    assert [steady.note("a", t, 5) for t in (0.0, 1.0, STEADY_S - 0.01)] == [None] * 3
    assert steady.note("a", STEADY_S, 7) == 5
    assert steady.note("a", STEADY_S + 1.5, 9) == 5
    assert steady.note("a", STEADY_S + 2.5, 9) == 7
    assert steady.note("a", STEADY_S + 2.6, 0) == 0
    assert steady.note("a", STEADY_S + 2.7, 9) == 0
    assert steady.note("b", STEADY_S + 2.7, 9) is None


def test_looks_far_apart_say_nothing_of_the_time_between() -> None:
    steady = Steady()
    steady.note("a", 0.0, 5)

    assert steady.note("a", 60.0, 5) is None


def test_what_is_not_kept_is_forgotten() -> None:
    steady = Steady()
    steady.note("a", 0.0, 5)
    steady.keep({"b"})

    assert steady.note("a", 3.0, 5) is None


def test_a_charge_moves_in_steps_and_back_to_zero() -> None:
    assert next_charge(0, MIB) == MIB
    assert next_charge(64 * MIB, 67 * MIB) == 64 * MIB
    assert next_charge(64 * MIB, 68 * MIB) == 68 * MIB
    assert next_charge(64 * MIB, 61 * MIB) == 64 * MIB
    assert next_charge(64 * MIB, 0) == 0
