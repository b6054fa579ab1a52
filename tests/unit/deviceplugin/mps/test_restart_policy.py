"""The pauses before MPS is started again: none, then longer and longer, and forgotten when calm."""

from deviceplugin.mps.restart_policy import CALM_S, LONGEST_PAUSE_S, RestartPolicy


def test_the_first_restart_comes_at_once_and_later_ones_wait_twice_as_long_each_time() -> None:
    policy = RestartPolicy()

    pauses = [policy.ended(float(moment)) for moment in range(8)]

    assert pauses == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, LONGEST_PAUSE_S, LONGEST_PAUSE_S]


def test_after_a_calm_time_the_next_restart_comes_at_once_again() -> None:
    policy = RestartPolicy()
    policy.ended(0.0)
    policy.ended(1.0)

    assert policy.ended(1.0 + CALM_S) == 2.0  # not calm for long enough
    assert policy.ended(1.0 + CALM_S + CALM_S + 0.1) == 0.0
    assert policy.ended(1.0 + CALM_S + CALM_S + 0.2) == 1.0
