"""Sizes of contexts and blocks by the word of containers, and what a lie of one can do."""

from dataclasses import replace

import pytest

from deviceplugin.model.gpus import Gpu
from deviceplugin.policy.limits.learnt_sizes import (
    LEAST_CONTEXT_BYTES,
    LEAST_FOR_BLOCKS,
    MOST_CONTAINERS,
    GpuKind,
    LearntSizes,
    MeasuredSizes,
    Sizes,
    kind_of,
)

MIB, GIB = 1 << 20, 1 << 30
H100 = GpuKind("NVIDIA H100", "580.65.06", under_mps=False)


def context(name: str, context_bytes: int, held_bytes: int = 2 * GIB) -> MeasuredSizes:
    return MeasuredSizes(name, "GPU-a", Sizes(context_bytes), held_bytes)


def block(name: str, block_bytes: int) -> MeasuredSizes:
    return MeasuredSizes(name, "GPU-a", Sizes(block_bytes=block_bytes), 2 * GIB)


def test_nothing_is_known_until_a_container_has_measured() -> None:
    learnt = LearntSizes()

    assert learnt.of(H100) == learnt.of(None) == Sizes()
    assert not learnt.note(H100, context("a", 0))
    assert learnt.note(H100, context("a", 518 * MIB))
    assert learnt.of(H100) == Sizes(518 * MIB)
    assert not learnt.note(H100, context("a", 518 * MIB))


@pytest.mark.parametrize(
    "other",
    [
        replace(H100, product="NVIDIA A100"),
        replace(H100, driver="550.54.14"),
        replace(H100, under_mps=True),
    ],
)
def test_another_model_driver_or_mps_is_another_kind(other: GpuKind) -> None:
    learnt = LearntSizes()
    learnt.note(H100, context("a", 518 * MIB))

    assert learnt.of(other) == Sizes()


@pytest.mark.parametrize("context_bytes", [0, LEAST_CONTEXT_BYTES - 1, GIB + 1, (1 << 63) - 1])
def test_more_than_a_process_holds_and_less_than_any_context_is_no_word(context_bytes: int) -> None:
    learnt = LearntSizes()

    assert not learnt.note(H100, context("liar", context_bytes, GIB))
    assert learnt.of(H100) == Sizes()


def test_one_container_among_others_moves_nothing() -> None:
    learnt = LearntSizes()
    for name in "abc":
        learnt.note(H100, MeasuredSizes(name, "GPU-a", Sizes(518 * MIB, 2 * MIB), 2 * GIB))

    for context_bytes, block_bytes in ((LEAST_CONTEXT_BYTES, 512), (2 * GIB, 32 * MIB)):
        lie = Sizes(context_bytes, block_bytes)
        learnt.note(H100, MeasuredSizes("liar", "GPU-a", lie, 2 * GIB))
        assert learnt.of(H100) == Sizes(518 * MIB, 2 * MIB)


def test_of_two_contexts_the_lesser_counts_and_of_blocks_in_the_middle_the_larger() -> None:
    learnt = LearntSizes()
    learnt.note(H100, context("a", 2 * GIB))
    learnt.note(H100, context("b", 518 * MIB))
    for number, block_bytes in enumerate((512, 512, 2 * MIB, 2 * MIB)):
        learnt.note(H100, block(str(number), block_bytes))

    assert learnt.of(H100) == Sizes(518 * MIB, 2 * MIB)


def test_blocks_are_known_once_some_have_said_them() -> None:
    learnt = LearntSizes()
    for number in range(LEAST_FOR_BLOCKS):
        assert learnt.of(H100).block_bytes == 0
        learnt.note(H100, block(str(number), 2 * MIB))

    assert learnt.of(H100).block_bytes == 2 * MIB


def test_the_last_containers_are_remembered() -> None:
    learnt = LearntSizes()
    for number in range(100):
        learnt.note(H100, context(str(number), (500 + number) * MIB))

    (known,) = learnt.measured.values()
    assert list(known) == [str(number) for number in range(100 - MOST_CONTAINERS, 100)]


def test_a_gpu_whose_driver_nobody_tells_has_no_kind() -> None:
    gpu = Gpu(0, "GPU-a", "NVIDIA H100", 80 * GIB, driver="580.65.06")

    assert kind_of(gpu, under_mps=False) == H100
    assert kind_of(replace(gpu, driver=""), under_mps=False) is None
