"""The books of handles and mappings, without a driver: orders of events, and racing threads."""

import re

import pytest

from support import IS_LONG, ROOT, Compile
from support.ended import printed
from support.shim.native_programs import shim_files

NAMES = (
    "vmm",
    "vmm_books",
    "vmm_records",
    "vmm_ranges",
    "vmm_address",
    "vmm_tiles",
    "sparse_array",
    "allocation_map",
    "locks",
    "waiting",
)
PURE = shim_files(*NAMES)
CASES = re.findall(r"^    CASE\((\w+)\)", (ROOT / "tests/native/vmm_books.c").read_text(), re.M)
ROUNDS, SEEDS = (300, 4) if IS_LONG else (100, 1)


@pytest.mark.parametrize("case", CASES)
def test_the_books_after(compile_program: Compile, case: str) -> None:
    program = compile_program("vmm_books.c", *PURE, flags=("-fsanitize=address,undefined",))

    printed(program, case)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("manners", ["proper", "misuse"])
def test_racing_threads_never_free_what_the_driver_keeps(
    compile_program: Compile, manners: str, seed: int
) -> None:
    program = compile_program("vmm_race.c", *PURE)

    printed(program, manners, str(ROUNDS), str(seed))
