"""Which rule of the config's ``limits`` meets a container: the first that matches. Pure."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from deviceplugin.model.allocations import Owner
from deviceplugin.model.limit_rules import LimitRule


def matching_rule(
    rules: Iterable[LimitRule], owner: Owner | None, labels: Mapping[str, str] | None = None
) -> LimitRule | None:
    """Returns the first rule that meets the container; names are shell patterns.

    Args:
        owner: None while nobody knows whose container it is; then no rule meets it.
        labels: of its pod; None where nobody can tell, then rules that ask for some never match.
    """
    if owner is None:
        return None
    for rule in rules:
        if (
            fnmatchcase(owner.namespace, rule.namespace)
            and fnmatchcase(owner.container, rule.container)
            and _labels_match(rule, labels)
        ):
            return rule
    return None


def _labels_match(rule: LimitRule, labels: Mapping[str, str] | None) -> bool:
    if not rule.pod_labels:
        return True
    return labels is not None and all(labels.get(key) == value for key, value in rule.pod_labels)
