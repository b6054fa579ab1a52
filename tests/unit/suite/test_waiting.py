"""Waiting for what is to happen, and what a failure of it says."""

import re

import pytest

from support.waiting import wait_until


def test_what_was_waited_for_is_returned() -> None:
    answers = iter(["", "", "ready"])

    assert wait_until(lambda: next(answers)) == "ready"


def test_a_failure_names_what_was_waited_for() -> None:
    with pytest.raises(AssertionError, match="not so in 0 s: the agent is up"):
        wait_until(lambda: False, "the agent is up", patience_s=0.02)


def test_a_failure_without_a_name_says_where_the_condition_stands() -> None:
    here = re.escape(__file__)

    with pytest.raises(
        AssertionError, match=rf"not so in 0 s: test_a_failure_without.*, {here}:\d+"
    ):
        wait_until(lambda: False, patience_s=0.02)


def test_a_failure_of_a_bound_method_names_that() -> None:
    with pytest.raises(AssertionError, match=r"not so in 0 s: .*method clear of dict"):
        wait_until({}.clear, patience_s=0.02)
