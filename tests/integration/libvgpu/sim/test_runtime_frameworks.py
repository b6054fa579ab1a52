"""A compiled program and two frameworks of the runtime API, on a simulated GPU and on a slice.

Each launches kernels, copies, and takes memory in pieces until it is refused. What a kernel
computes is not looked at. They come from PyPI, and are too large for the short form.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from support.ended import run_to_end
from support.sim.clients import (
    CLIENTS,
    MIB,
    PROFILE,
    TOTAL_BYTES,
    Run,
    both_places,
    made_by_make,
)

PIECE_BYTES = 256 * MIB
#: What code and work space of libraries may take besides the context.
SLACK_BYTES = 128 * MIB

Command = tuple[str | Path, ...]


def compiled(folder: Path) -> Command:
    (toolkit,) = (
        Path(made_by_make("programs", "python"))
        .parents[1]
        .glob("lib/python3*/site-packages/nvidia/cu13")
    )
    program = folder / "runtime_program"
    options = ("-arch=sm_90", f"-L{toolkit / 'lib'}", "-o", program)
    done = run_to_end([toolkit / "bin/nvcc", *options, CLIENTS / "runtime_program.cu"])
    assert done.returncode == 0, done.stderr
    return (program,)


def of_framework(name: str) -> Callable[[Path], Command]:
    return lambda _: (made_by_make("programs", "python"), CLIENTS / f"{name}_client.py")


@pytest.mark.long
@pytest.mark.parametrize(
    "command",
    [compiled, of_framework("cupy"), of_framework("numba")],
    ids=["nvcc", "cupy", "numba"],
)
@both_places
def test_a_program_has_the_memory_of_its_place_and_no_more(
    run: Run, tmp_path: Path, place: tuple[str, ...], command: Callable[[Path], Command]
) -> None:
    seen = json.loads(run(place, *command(tmp_path)))

    total_bytes = TOTAL_BYTES[place]
    assert seen["total_bytes"] == total_bytes
    assert seen["copied"] == [7, 8, 9]
    taken_bytes = total_bytes - seen["free_bytes"]
    assert PROFILE.context_bytes <= taken_bytes <= PROFILE.context_bytes + SLACK_BYTES
    assert 0 <= seen["free_bytes"] - seen["granted_bytes"] < PIECE_BYTES
