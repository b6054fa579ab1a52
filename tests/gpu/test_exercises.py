"""Every hooked function does on this machine's GPU what its row promises, or says why it cannot."""

from typing import Any

import pytest

from support.exercise.runner import exercises_of, families, measures

pytestmark = pytest.mark.gpu


def every_exercise() -> list[Any]:
    return [
        pytest.param(
            family, name, id=f"{family}-{name}", marks=[pytest.mark.timing] * measures(family)
        )
        for family in families()
        for name in exercises_of(family)
    ]


@pytest.mark.parametrize(("family", "name"), every_exercise())
def test_an_exercise_passes_on_the_gpu(gpu_run: Any, family: str, name: str) -> None:
    result = gpu_run.result(family, name)

    if result["newer"]:
        pytest.skip(f"{', '.join(result['newer'])} came after this driver")
    if result["skipped"]:
        pytest.skip(result["skipped"])
    if result["failure"]:
        pytest.fail(result["failure"], pytrace=False)
