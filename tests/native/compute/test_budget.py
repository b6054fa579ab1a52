"""Budgets of GPU time that threads take launches from without a lock."""

import pytest

from support import IS_LONG, Compile
from support.ended import printed
from support.shim.native_programs import shim_files

MILLISECONDS = 3000 if IS_LONG else 300
SOURCES = ("budget", "estimate", "ration", "virtual_time", "waiting")
KNOWN_KINDS, ALL_KINDS = 8, 16


def check(compile_program: Compile, threads: int, kinds: int) -> None:
    program = compile_program(
        "budget_threads.c",
        *shim_files(*SOURCES),
        flags=("-fsanitize=address,undefined", "-Wno-unused-parameter"),
    )

    figures = map(int, printed(program, str(threads), str(MILLISECONDS), str(kinds)).split())
    taken_ns, launches, noted_ns, noted_launches, charged_ns, overdrawn, stale = figures
    assert (noted_ns, noted_launches) == (taken_ns, launches)
    assert charged_ns == taken_ns
    assert overdrawn == 0
    assert stale == 0  # the limits or the grant had changed


@pytest.mark.parametrize("threads", [1, 4, 12])
def test_what_threads_take_is_what_is_charged(compile_program: Compile, threads: int) -> None:
    check(compile_program, threads, KNOWN_KINDS)


def test_kinds_without_a_price_take_nothing(compile_program: Compile) -> None:
    check(compile_program, 4, ALL_KINDS)
