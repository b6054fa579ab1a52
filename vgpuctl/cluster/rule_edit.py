"""Puts a rule into the `limits` of a config's text, changes or removes it; the rest stays. Pure.

Comments and form of the text are its writer's, so the text itself is cut where YAML's parser says
that a rule begins and ends. What comes out is parsed again and held against what it must say: a
text in which that does not succeed is refused, never half changed.

Of rules the first that matches counts. A new one goes before the first that matches all that it
does, so that what is there for some of them stays in force, and else to the end.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import yaml

from deviceplugin.config.loading import parse_config
from libvgpu.errors import ConfigError, VgpuError
from libvgpu.yamltext import parse


@dataclass(frozen=True, slots=True)
class Match:
    """Whom a rule is for; empty values are not written."""

    namespace: str
    container: str = "*"
    pod_labels: tuple[tuple[str, str], ...] = ()

    def written(self) -> dict[str, Any]:
        """Returns it as the config has it."""
        found: dict[str, Any] = {"namespace": self.namespace}
        if self.container != "*":
            found["container"] = self.container
        if self.pod_labels:
            found["podLabels"] = dict(self.pod_labels)
        return found

    def is_same(self, rule: Mapping[str, Any]) -> bool:
        """Returns whether a rule of the config is for exactly these."""
        match = _of(rule)
        return (
            match.get("namespace", "*") == self.namespace
            and match.get("container", "*") == self.container
            and dict(match.get("podLabels") or {}) == dict(self.pod_labels)
        )

    def is_covered_by(self, rule: Mapping[str, Any]) -> bool:
        """Returns whether a rule of the config matches all of these."""
        match = _of(rule)
        return (
            fnmatchcase(self.namespace, str(match.get("namespace", "*")))
            and fnmatchcase(self.container, str(match.get("container", "*")))
            and set((match.get("podLabels") or {}).items()) <= set(self.pod_labels)
        )


def _of(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Returns whom a rule of the config is for, without keys that are null."""
    return {key: value for key, value in (rule.get("match") or {}).items() if value is not None}


def with_rule(text: str, match: Match, values: Mapping[str, Any] | None) -> str:
    """Returns a config's text with a rule.

    Args:
        values: ``core``, ``memory`` and ``compute`` as the config has them; what a rule for the
            same says besides stays. None: the rule is taken out.

    Raises:
        ConfigError: the text is no good config, before or afterwards.
        VgpuError: there is no such rule to take out, or the text is of a form in which no rule can
            be changed.
    """
    parse_config(text)
    data, _ = parse(text, "config")
    rules = list(data.get("limits") or [])
    at = next((n for n, rule in enumerate(rules) if match.is_same(rule)), None)
    wanted = copy.deepcopy(data)
    if values is None:
        if at is None:
            raise VgpuError(f"there is no rule for {_named(match)} to clear")
        wanted["limits"] = rules[:at] + rules[at + 1 :]
        made = _without(text, at)
    elif at is not None:
        changed = {**rules[at], **values}
        wanted["limits"] = [*rules[:at], changed, *rules[at + 1 :]]
        made = _replaced(text, at, changed)
    else:
        new = {"match": match.written(), **values}
        covering = (n for n, rule in enumerate(rules) if match.is_covered_by(rule))
        place = next(covering, len(rules))
        wanted["limits"] = [*rules[:place], new, *rules[place:]]
        made = _inserted(text, place, new)
    try:
        parse_config(made)
        is_right = parse(made, "config")[0] == wanted
    except ConfigError as error:
        if _is_bad(wanted):
            raise  # not for its form: what is wanted is no good config
        raise _not_cut() from error
    if not is_right:
        raise _not_cut()
    return made


def _is_bad(data: Any) -> bool:
    try:
        parse_config(yaml.safe_dump(data))
    except ConfigError:
        return True
    return False


def _not_cut() -> VgpuError:
    return VgpuError(
        "the config is written in a form in which its limits cannot be changed by program",
        hint="change it by hand: kubectl edit configmap",
    )


def _named(match: Match) -> str:
    return _flow(match.written())


def _flow(value: Any) -> str:
    """Returns a value on one line."""
    made: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1 << 20)
    return made.strip()


def _limits_of(text: str) -> tuple[yaml.Node | None, yaml.Node | None]:
    """Returns key and value of ``limits``, None where the text has none."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if isinstance(root, yaml.MappingNode):
        for key, value in root.value:
            if key.value == "limits":
                return key, value
    return None, None


def _items(value: yaml.Node | None) -> Sequence[yaml.Node]:
    return value.value if isinstance(value, yaml.SequenceNode) else ()


def _is_flow(node: yaml.Node) -> bool:
    """Returns whether a list or mapping is in brackets."""
    return bool(getattr(node, "flow_style", False))


def _end(node: yaml.Node) -> int:
    """Returns where a node's own text ends: in block style the parser counts what follows, too."""
    last = node.value[-1] if isinstance(node, yaml.CollectionNode) and node.value else None
    if last is None or _is_flow(node):
        return int(node.end_mark.index)
    return _end(last[1] if isinstance(last, tuple) else last)


def _replaced(text: str, at: int, rule: Mapping[str, Any]) -> str:
    item = _items(_limits_of(text)[1])[at]
    return text[: item.start_mark.index] + _flow(dict(rule)) + text[_end(item) :]


def _inserted(text: str, at: int, rule: Mapping[str, Any]) -> str:
    key, value = _limits_of(text)
    items, flow = _items(value), _flow(dict(rule))
    if key is None or value is None:
        return f"{text.rstrip()}\nlimits:\n- {flow}\n"
    if not items:
        rest = text[value.end_mark.index :]
        if key.start_mark.column:  # all of the text is in brackets
            return f"{text[: value.start_mark.index]}[{flow}]{rest}"
        return f"{text[: key.end_mark.index]}:\n- {flow}{rest}"
    if _is_flow(value):
        if at < len(items):
            place = items[at].start_mark.index
            return f"{text[:place]}{flow}, {text[place:]}"
        place = _end(items[-1])
        return f"{text[:place]}, {flow}{text[place:]}"
    dash = " " * value.start_mark.column + f"- {flow}\n"
    if at < len(items):
        place = _dash_line(text, items[at])
        return text[:place] + dash + text[place:]
    place = text.find("\n", _end(items[-1])) + 1
    return text[:place] + dash + text[place:] if place else f"{text}\n{dash}"


def _without(text: str, at: int) -> str:
    key, value = _limits_of(text)
    items = _items(value)
    assert key is not None and value is not None
    if len(items) == 1:
        end = value.end_mark.index if _is_flow(value) else _end(items[0])
        return f"{text[: key.end_mark.index]}: []{text[end:]}"
    if _is_flow(value):
        if at + 1 < len(items):
            return text[: items[at].start_mark.index] + text[items[at + 1].start_mark.index :]
        return text[: _end(items[at - 1])] + text[_end(items[at]) :]
    end = text.find("\n", _end(items[at])) + 1
    return text[: _dash_line(text, items[at])] + (text[end:] if end else "")


def _dash_line(text: str, item: yaml.Node) -> int:
    """Returns where the line begins on which an item's dash stands; that may be lines above it."""
    dashes = (
        token.start_mark.index
        for token in yaml.scan(text)
        if isinstance(token, yaml.BlockEntryToken)
    )
    mine = max(dash for dash in dashes if dash < item.start_mark.index)
    return text.rfind("\n", 0, mine) + 1
