"""What contexts take by the word of containers, and what a lie of one can do."""

from dataclasses import replace

import pytest

from deviceplugin.model.gpus import Gpu
from deviceplugin.policy.context_costs import (
    LEAST_BYTES,
    MOST_CONTAINERS,
    ContextCosts,
    ContextKind,
    MeasuredContext,
    kind_of,
)

MIB, GIB = 1 << 20, 1 << 30
H100 = ContextKind("NVIDIA H100", "580.65.06", under_mps=False)


def measured(name: str, context_bytes: int, held_bytes: int = 2 * GIB) -> MeasuredContext:
    return MeasuredContext(name, "GPU-a", context_bytes, held_bytes)


def test_nothing_is_known_until_a_container_has_measured() -> None:
    costs = ContextCosts()

    assert costs.of(H100) == costs.of(None) == 0
    assert costs.note(H100, measured("a", 518 * MIB))
    assert costs.of(H100) == 518 * MIB
    assert not costs.note(H100, measured("a", 518 * MIB))


@pytest.mark.parametrize(
    "other",
    [
        replace(H100, product="NVIDIA A100"),
        replace(H100, driver="550.54.14"),
        replace(H100, under_mps=True),
    ],
)
def test_another_model_driver_or_mps_is_another_kind(other: ContextKind) -> None:
    costs = ContextCosts()
    costs.note(H100, measured("a", 518 * MIB))

    assert costs.of(other) == 0


@pytest.mark.parametrize("context_bytes", [0, LEAST_BYTES - 1, GIB + 1, (1 << 63) - 1])
def test_more_than_a_process_holds_and_less_than_any_context_is_no_word(context_bytes: int) -> None:
    costs = ContextCosts()

    assert not costs.note(H100, measured("liar", context_bytes, GIB))
    assert costs.of(H100) == 0


def test_one_container_among_others_moves_nothing() -> None:
    costs = ContextCosts()
    for name in "abc":
        costs.note(H100, measured(name, 518 * MIB))

    for lie in (LEAST_BYTES, 2 * GIB, 100 * MIB):
        costs.note(H100, measured("liar", lie))
        assert costs.of(H100) == 518 * MIB


def test_of_two_that_differ_the_lesser_counts() -> None:
    costs = ContextCosts()
    costs.note(H100, measured("a", 2 * GIB))
    costs.note(H100, measured("b", 518 * MIB))

    assert costs.of(H100) == 518 * MIB


def test_the_last_containers_are_remembered() -> None:
    costs = ContextCosts()
    for number in range(100):
        costs.note(H100, measured(str(number), (500 + number) * MIB))

    (known,) = costs.measured.values()
    assert list(known) == [str(number) for number in range(100 - MOST_CONTAINERS, 100)]


def test_a_gpu_whose_driver_nobody_tells_has_no_kind() -> None:
    gpu = Gpu(0, "GPU-a", "NVIDIA H100", 80 * GIB, driver="580.65.06")

    assert kind_of(gpu, under_mps=False) == H100
    assert kind_of(replace(gpu, driver=""), under_mps=False) is None
