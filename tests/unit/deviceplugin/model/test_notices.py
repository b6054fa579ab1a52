"""Whom a notice is for."""

from deviceplugin.model.allocations import Owner
from deviceplugin.model.notices import (
    THIS_NODE,
    EventReason,
    Notice,
    container_notice,
    node_notice,
)

OWNER = Owner("team-a", "pod", "main")


def test_a_reason_is_what_kubernetes_shows_and_says_whether_it_warns() -> None:
    assert EventReason("ContainerStartRefused") is EventReason.CONTAINER_START_REFUSED
    assert EventReason.CONTAINER_START_REFUSED.is_warning
    assert not EventReason.LIMITS_CHANGED.is_warning
    assert all(reason.value.isalpha() for reason in EventReason)


def test_a_container_is_told_once_it_is_known() -> None:
    reason = EventReason.CONTAINER_START_REFUSED

    assert container_notice(reason, "two GPUs", OWNER) == Notice(reason, "two GPUs", OWNER)
    assert container_notice(reason, "two GPUs", None) == Notice(reason, "two GPUs", THIS_NODE)
    assert node_notice(reason, "two GPUs") == Notice(reason, "two GPUs", THIS_NODE)


def test_good_news_for_a_container_that_is_not_known_is_dropped() -> None:
    for reason in (EventReason.LIMITS_CHANGED, EventReason.UNACCOUNTED_MEMORY_GONE):
        assert container_notice(reason, "less", None) is None
