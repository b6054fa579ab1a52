"""Short forms of the extender's figure, with bars that leave room for neighbours.

What does not depend on the machine (nothing promised twice, nothing refused, GPUs left whole) has
the figure's own bar. The figure itself: ``python -m benchmarks run extender``. In the gate the
agents of test_never_refused.py refuse nothing that the extender binds.
"""

import pytest

from benchmarks import extender_calls, extender_flow, extender_packing
from benchmarks.extender_nodes import EXTENDER
from benchmarks.figure import Measurement, is_missed

SLACK = 5.0


@pytest.mark.timing
def test_it_answers_soon_binds_many_and_is_soon_right_again() -> None:
    found = extender_calls.measure_calls(1000, 20, 1) + extender_flow.measure_flow(100, 1)

    by_time = [each for each in found if each.unit in ("ms", "pods/s", "MiB")]
    assert len(by_time) >= 11
    for each in by_time:
        assert each.value is not None and each.value > 0, each
        assert each.most is None or each.value <= each.most * SLACK, each
        assert each.least is None or each.value >= each.least / SLACK, each
    exact = [each for each in found if each not in by_time]
    assert exact
    assert [each for each in exact if is_missed(each)] == []


@pytest.mark.long
def test_it_leaves_gpus_whole_and_no_agent_refuses() -> None:
    found = extender_packing.measure_packing(is_quick=True)

    ours = [each for each in found if each.subject == EXTENDER]
    assert len(ours) == 4
    assert [each for each in ours if is_missed(each)] == []
    assert_both(found)


def assert_both(found: list[Measurement]) -> None:
    """The default scheduler stands next to it in the same run."""
    cases = {each.case for each in found}
    for case in cases:
        assert len({each.subject for each in found if each.case == case}) == 2, case
