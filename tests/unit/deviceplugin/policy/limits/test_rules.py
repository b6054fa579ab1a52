"""Which rule of the config meets a container."""

from deviceplugin.model.allocations import Owner
from deviceplugin.model.limit_rules import LimitRule
from deviceplugin.policy.limits.rules import matching_rule

OWNER = Owner("team-a", "pod", "main")


def test_the_first_match_counts() -> None:
    rules = (
        LimitRule(namespace="team-b", core_percent=1),
        LimitRule(pod_labels=(("tier", "batch"),), core_percent=2),
        LimitRule(namespace="team-*", container="m?in", core_percent=3),
        LimitRule(core_percent=4),
    )

    assert matching_rule(rules, OWNER) == rules[2]
    assert matching_rule(rules, Owner("x", "pod", "main")) == rules[3]
    assert matching_rule(rules[:3], Owner("x", "pod", "main")) is None


def test_an_unknown_container_has_what_it_asked_for() -> None:
    assert matching_rule((LimitRule(core_percent=4),), None) is None


def test_labels_count_only_where_somebody_can_tell_them() -> None:
    rules = (LimitRule(pod_labels=(("tier", "batch"), ("team", "a")), core_percent=1),)

    assert matching_rule(rules, OWNER) is None
    assert matching_rule(rules, OWNER, {"tier": "batch"}) is None
    assert matching_rule(rules, OWNER, {"tier": "batch", "team": "a", "x": "y"}) == rules[0]
