"""Short forms of the agent's figures: few containers, and bars that leave room for neighbours.

What does not depend on the machine (what is left behind, the length of a list) has the figure's own
bar. The figures themselves: ``python -m benchmarks run allocate reload``.
"""

import random

import pytest

from benchmarks import allocate, at_rest, churn, config_reload
from benchmarks.agent_node import RESOURCES, open_node, profiles
from benchmarks.churn import Churn, Kept
from benchmarks.figure import Measurement, Options
from support.waiting import wait_until

CONTAINERS = 40
#: More than live at once, so that some go while others come.
A_FEW = churn.LIVE + 5
IDLE_SECONDS = 1.0
CHANGES = 2
#: For milliseconds and processor time: a core may be shared with somebody's test.
SLACK = 5.0
NOISE_MIB = 1  # between two processes that do the same
#: A few containers do not fill what a thousand do.
MOST_GROWTH_KIB = 4096.0


def values(found: list[Measurement]) -> dict[tuple[str, str], float]:
    return {
        (each.case.partition(",")[0], each.quantity): each.value
        for each in found
        if each.value is not None
    }


def test_the_agent_keeps_no_file_descriptor_or_thread_of_what_has_gone() -> None:
    with open_node(profiles()) as node:
        before, containers = Kept.of(node), Churn(node, random.Random(20))
        containers.run(A_FEW)
        containers.end_all()

        def has_one_of_each() -> bool:
            after = Kept.of(node)
            return (
                after.descriptors >= before.descriptors + A_FEW
                or after.threads >= before.threads + A_FEW
                or after.files > before.files
            )

        # A look of the agent later, what it held of them is let go.
        wait_until(lambda: not has_one_of_each(), "nothing is kept of each container")


@pytest.mark.timing
def test_the_agent_answers_soon_stays_small_and_keeps_nothing() -> None:
    found = allocate.measure(Options(None, 1, IDLE_SECONDS, CONTAINERS))

    value = values(found)
    for resource in RESOURCES:
        assert 10 < value[f"list of {resource}", "message"] < allocate.MOST_LIST_KIB
    for method, name, _, most in allocate.TIMES:
        if most is not None:
            assert 0 < value[method, name] <= most * SLACK, (method, name)
    come_and_go = f"{CONTAINERS} containers come and go"
    assert value[come_and_go, "descriptors more"] <= 0
    assert value[come_and_go, "files more in the run directory"] == 0
    assert value[come_and_go, "resident memory grown"] <= MOST_GROWTH_KIB
    assert value[come_and_go, "state directory grown"] <= allocate.MOST_GROWTH_KIB
    held = f"{churn.LIVE} slices held"
    assert 20 < value[held, "resident memory"] <= at_rest.MOST_RESIDENT_MIB
    with_api = value[at_rest.WITH_API, "resident memory"]
    # The one with an API server is new; the other may have grown by what is allowed above.
    assert value[held, "resident memory"] < with_api + MOST_GROWTH_KIB / 1024 + NOISE_MIB
    assert with_api <= at_rest.MOST_RESIDENT_WITH_API_MIB
    assert 0 < value[held, "processor, idle"] <= 0.5 * SLACK
    assert value["kubelet restarted", "the same, worst of 1"] <= 2.0


@pytest.mark.timing
def test_a_changed_config_file_holds_in_a_running_process_within_a_second() -> None:
    found = config_reload.measure(Options(None, CHANGES))

    worst = [each for each in found if each.most is not None]
    assert len(worst) == 3
    for each in worst:
        assert each.value is not None
        assert 0 < each.value <= config_reload.MOST_MS, each.case
