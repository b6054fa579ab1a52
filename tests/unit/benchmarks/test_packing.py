"""Off-line best-fit, with which the extender's packing is compared, and what pods count for."""

import random

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.extender_packing import LOAD, arrivals, off_line
from benchmarks.simulated_cluster.machines import CORE, MEMORY
from benchmarks.simulated_cluster.packing import BestFit, Wanted, made_up, packed_again, recorded
from benchmarks.simulated_cluster.pod_shapes import Shape


def test_a_fraction_goes_to_the_gpu_with_the_least_left() -> None:
    fit = BestFit(2, 2, 80)
    assert fit.place(1, Wanted(60, 40)) and fit.place(2, Wanted(70, 40))
    assert fit.left_whole == 2
    assert fit.place(3, Wanted(30, 40))  # next to the second, which it fills
    assert fit.place(4, Wanted(40, 40))
    assert fit.left_whole == 2
    fit.end(2)
    fit.end(3)
    assert fit.left_whole == 3


def test_whole_gpus_go_to_the_node_with_the_fewest_empty_ones() -> None:
    fit = BestFit(2, 2, 80)
    fit.place(1, Wanted(10, 10))
    assert fit.place(2, Wanted(0, 0, 1))
    assert fit.place(3, Wanted(0, 0, 2))  # the other node is still whole
    assert not fit.place(4, Wanted(0, 0, 1))
    assert fit.left_whole == 0


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(1, 80)), max_size=60))
def test_nothing_is_given_twice_and_all_comes_back(pods: list[tuple[int, int]]) -> None:
    fit = BestFit(2, 4, 80)
    placed = [n for n, each in enumerate(pods) if fit.place(n, Wanted(*each))]
    assert sum(pods[n][0] for n in placed) <= 800
    assert sum(pods[n][1] for n in placed) <= 640
    for pod in placed:
        fit.end(pod)
    assert fit.left_whole == 8


def test_arrivals_are_the_same_each_time_and_end_only_once() -> None:
    for make in (recorded, made_up):
        steps, last = arrivals(make, 4, 3)
        assert (steps, last) == arrivals(make, 4, 3)
        came = [pod for step in steps for pod, _ in step.comes]
        gone = [pod for step in steps for pod in step.ends]
        assert len(set(came)) == len(came) and len(set(gone)) == len(gone)
        assert set(last) == set(came) - set(gone)
        assert sum(each.load for each in last.values()) >= LOAD * 4 * 8
        assert len(off_line(steps, 4)) == len(steps)


def test_placing_all_at_once_leaves_as_many_whole_as_one_by_one() -> None:
    chance = random.Random(1)
    pods = [made_up(chance) for _ in range(60)]
    fit = BestFit(8, 8, 80)
    assert all(fit.place(n, each) for n, each in enumerate(pods))
    assert packed_again(8, 8, 80, pods) >= fit.left_whole - 1


def test_a_pod_counts_as_kube_scheduler_counts_it() -> None:
    pair = {CORE: 10, MEMORY: 4}
    init = ({CORE: 50, MEMORY: 2}, False)
    sidecar = ({CORE: 5, MEMORY: 1}, True)
    assert Shape([pair, pair]).requests() == {CORE: 20, MEMORY: 8}
    assert Shape([pair], [init]).requests() == {CORE: 50, MEMORY: 4}
    assert Shape([pair], [sidecar, init]).requests() == {CORE: 55, MEMORY: 5}
    assert Shape([pair], [init, sidecar]).requests() == {CORE: 50, MEMORY: 5}
