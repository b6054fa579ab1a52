"""Kernels of collectives are known by name, and each function's name is asked for once."""

import pytest

from support import Compile
from support.ended import printed

MORE_THAN_FIT = 3000


def answers(compile_program: Compile, *lines: str) -> list[list[int]]:
    program = compile_program("collective.c", "libvgpu/src/compute/cap/collective.c")
    said = printed(program, told="\n".join(lines))
    return [[int(word) for word in line.split()] for line in said.splitlines()]


@pytest.mark.parametrize(
    ("name", "is_collective"),
    [
        ("ncclDevKernel_Generic", 1),
        ("_Z36ncclDevKernel_AllReduce_Sum_f32_RING24ncclDevKernelArgsStorageILm4096EE", 1),
        ("ncclKernel_AllReduce_RING_LL_Sum_float", 1),
        ("_Z32ncclKernel_SendRecv_RING_SIMPLE11ncclDevComm", 1),
        ("nvshmemi_barrier_kernel", 1),
        ("_ZN8nvshmemi7barrierEv", 1),
        ("_ZL21nvshmem_put_thresholdv", 1),
        ("spin_ns", 0),
        ("my_ncclDevKernel", 0),
        ("_Z7ncclDevv", 0),
        ("_Z19copy_ncclDevKernelsv", 0),
        ("_Z", 0),
        ("_ZN", 0),
        ("nccl", 0),
    ],
)
def test_collectives_are_known_by_name(
    compile_program: Compile, name: str, is_collective: int
) -> None:
    assert answers(compile_program, f"name {name}") == [[is_collective]]


def test_a_function_is_asked_for_once_until_code_is_unloaded(compile_program: Compile) -> None:
    reply = answers(
        compile_program,
        "function 7f0010 ncclDevKernel_Generic",
        "function 7f0011 plain",
        "ask 7f0010",
        "ask 7f0011",
        "ask 7f0010",
        "ask 7f0011",
        "function 7f0010 plain",
        "ask 7f0010",
        "forget",
        "ask 7f0010",
    )

    assert reply == [[1, 1], [0, 2], [1, 2], [0, 2], [1, 2], [0, 3]]


def test_a_kernel_in_a_functions_place_is_known_too(compile_program: Compile) -> None:
    reply = answers(compile_program, "kernel 7f0020 nvshmemi_kernel", "ask 7f0020", "ask 7f0020")

    assert reply == [[1, 1], [1, 1]]


def test_nothing_is_a_collective_where_the_driver_tells_no_names(compile_program: Compile) -> None:
    reply = answers(compile_program, "without", "function 7f0030 ncclKernel", "ask 7f0030", "ask 0")

    assert reply == [[0, 0], [0, 0]]


def test_more_functions_than_the_table_holds_get_the_right_answers(
    compile_program: Compile,
) -> None:
    handles = [0x7F0000000000 + 16 * i for i in range(MORE_THAN_FIT)]
    names = ["ncclDevKernel" if i % 3 == 0 else "plain" for i in range(MORE_THAN_FIT)]
    known = [f"function {h:x} {n}" for h, n in zip(handles, names, strict=True)]
    asked = [f"ask {h:x}" for h in handles]

    reply = answers(compile_program, *known, *asked, *asked)

    assert [line[0] for line in reply] == [n == "ncclDevKernel" for n in names] * 2
