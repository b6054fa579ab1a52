"""Every hooked function does what its row promises, called by its exact symbol."""

import pytest

from libvgpu.driver_releases import release_of_cuda
from support.exercise.runner import families, hooked, measures, run_family
from support.sim.driver import driver_version


@pytest.mark.parametrize(
    "family",
    [pytest.param(f, marks=pytest.mark.virtual) if measures(f) else f for f in families()],
)
def test_the_hooked_functions_of_a_family_do_what_their_rows_promise(family: str) -> None:
    results = run_family(family)

    assert results
    failures = [
        f"{name}:\n{result['failure']}" for name, result in results.items() if result["failure"]
    ]
    assert not failures, "\n".join(failures)
    skipped = [f"{name}: {result['skipped']}" for name, result in results.items()]
    assert not [words for words in skipped if not words.endswith(": ")], skipped
    newer = {symbol for result in results.values() for symbol in result["newer"]}
    assert newer.isdisjoint(hooked(release_of_cuda(driver_version())))
