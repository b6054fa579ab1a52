"""Lists and samples of processes as drivers give them: long, and of other pids."""

import pytest

from support import Compile
from support.ended import printed

SOURCES = ("libvgpu/src/driver/driver_processes.c", "libvgpu/src/hooks/own_samples.c")


def told(compile_program: Compile, *arguments: object) -> str:
    program = compile_program(
        "driver_processes_cases.c", *SOURCES, flags=("-fsanitize=address,undefined",)
    )
    return printed(program, *map(str, arguments)).rstrip("\n")


@pytest.mark.parametrize(
    ("version", "entry_bytes"),
    [("v2", 24), ("v3", 24), ("v3", 32), ("v3", 40), ("v3", 64)],  # of the last two none is known
)
@pytest.mark.parametrize("count", [1, 2, 32, 33, 48, 49, 65, 200, 3000])
def test_the_last_of_many_is_found_with_its_own_figure(
    compile_program: Compile, version: str, count: int, entry_bytes: int
) -> None:
    last = 99 + count

    assert told(compile_program, entry_bytes, version, count, 0, last, last + 1) == (
        f"{entry_bytes} 1:{last} 0:0 0"
    )


@pytest.mark.parametrize("samples", [1, 256, 257, 700])
def test_samples_of_ours_are_found_among_many(compile_program: Compile, samples: int) -> None:
    ours = 100, 99 + samples

    said = told(compile_program, 24, "v2", samples, samples, *ours)

    assert said.split()[-1] == str(len(set(ours)))


def test_an_empty_list_tells_no_length(compile_program: Compile) -> None:
    assert told(compile_program, 32, "v3", 0, 0, 100) == "24 0:0 unknown"


@pytest.mark.parametrize(
    ("pids", "samples", "own", "ours"),
    [
        ("3", "0", 101, "0"),  # nobody worked
        ("3", "1", 102, "0"),  # somebody else did
        ("3+2", "3", 101, "unknown"),  # another one has our number
        ("3+2", "3", 102, "1"),
        ("3", "h3", 101, "unknown"),  # samples have the host's pids, and the list ours
    ],
)
def test_samples_are_ours_only_where_that_can_be_told(
    compile_program: Compile, pids: str, samples: str, own: int, ours: str
) -> None:
    assert told(compile_program, 24, "v2", pids, samples, own).split()[-1] == ours
