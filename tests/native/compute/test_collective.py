"""Kernels of collectives are known by name, read when they are handed out or asked for once."""

import pytest

from support import Compile
from support.ended import printed

MANY = 3000


def answers(compile_program: Compile, *lines: str) -> list[list[int]]:
    sources = (f"libvgpu/src/compute/cap/{name}.c" for name in ("collective", "collective_names"))
    program = compile_program("collective.c", *sources)
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
        ("ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_bf16", 1),
        ("_Z40ncclSymkDevKernel_AllGather_STMC23ncclSymkDevWorkArgs4K", 1),
        ("_ZN4vllm26cross_device_reduce_1stageI13__nv_bfloat16Li8EEEvPNS_8RankDataE", 1),
        ("_ZN12tensorrt_llm7kernels22oneShotAllReduceKernelI6__halfEEvNS0_15AllReduceParamsE", 1),
        (
            "_ZN10flashinfer22trtllm_allreduce_fusion39allreduce_fusion_kernel_oneshot_lamportILi1EEEv",
            1,
        ),
        ("_ZN5mnnvl28oneshotAllreduceFusionKernelILh8EEEvPf", 1),
        (
            "_ZN70_GLOBAL__N__0a1b2c3d_26_CUDASymmetricMemory_cu_0a1b2c3d_1234567890123514barrier_kernelEPPjim",
            1,
        ),
        ("_ZN12_GLOBAL__N_126multimem_all_reduce_kernelIN3c108BFloat16ELi16EEEvPT_m", 1),
        ("two_shot_all_reduce_kernel_inplace", 1),
        ("_ZN7deep_ep9intranode8dispatchILi8ELi768EEEvP4int4Pf", 1),
        ("NVLSAllGather_kernel", 1),
        ("symm_mem_barrier", 1),
        ("spin_ns", 0),
        ("reduce_kernel", 0),
        (
            "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_14func_wrapper_tIfEEfEEEEvT1_",
            0,
        ),
        ("_Z18vectorized_elementIZN4c10d9allreduceEvEUlfE_Evi", 0),
        ("_Z6lamport_initN6mnnvl15AllReduceParamsE", 0),
        ("small_reduce_kernel", 0),
        ("CallReduceKernel", 0),
        ("SMALLReduce", 0),
        ("block_all_reduce_sum_f32_kernel", 0),
        ("_Z13warpAllReducePfi", 0),
        ("scatter_reduce_kernel", 0),
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


def test_a_function_is_asked_for_once_until_it_is_handed_out_anew(compile_program: Compile) -> None:
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
        "named 7f0010 -",
        "ask 7f0010",
        "named 7f0010 ncclKernel",
        "ask 7f0010",
    )

    assert reply == [[1, 1], [0, 2], [1, 2], [0, 2], [1, 2], [0, 3], [1, 3]]


def test_a_kernel_in_a_functions_place_is_known_too(compile_program: Compile) -> None:
    reply = answers(compile_program, "kernel 7f0020 nvshmemi_kernel", "ask 7f0020", "ask 7f0020")

    assert reply == [[1, 1], [1, 1]]


def test_names_are_read_at_the_hand_out_where_the_driver_tells_none(
    compile_program: Compile,
) -> None:
    handed_out = ("named 7f0030 ncclKernel", "named 7f0031 plain", "named 7f0032 -")

    reply = answers(
        compile_program, "without", *handed_out, *(f"ask 7f003{i}" for i in range(3)), "ask 0"
    )

    assert reply == [[1, 0], [0, 0], [0, 0], [0, 0]]


def test_graphs_are_known_while_they_are_there(compile_program: Compile) -> None:
    reply = answers(
        compile_program,
        "know 7f0040",
        "keep 7f0040 1",
        "know 7f0040",
        "keep 7f0040 0",
        "know 7f0040",
        "keep 7f0041 0",
        "function 7f0041 ncclKernel",
        "know 7f0041",
        "ask 7f0041",
    )

    assert reply == [[0], [1], [0], [0], [1, 1]]


def test_many_functions_get_the_right_answers(
    compile_program: Compile,
) -> None:
    handles = [0x7F0000000000 + 16 * i for i in range(MANY)]
    names = ["ncclDevKernel" if i % 3 == 0 else "plain" for i in range(MANY)]
    known = [f"function {h:x} {n}" for h, n in zip(handles, names, strict=True)]
    asked = [f"ask {h:x}" for h in handles]

    reply = answers(compile_program, *known, *asked, "without", *asked)

    right = [n == "ncclDevKernel" for n in names]
    assert [line[0] for line in reply] == right * 2
