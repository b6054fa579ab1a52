"""Selectors of labels and fields, as lists and watches have them; pure."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from .kinds import Kind
from .refusals import bad_request

Holds = Callable[[Mapping[str, Any]], bool]

_SET = re.compile(r"(\S+)\s+(in|notin)\s+\(([^)]*)\)")
_COMPARED = re.compile(r"([^=!\s]+)\s*(==|=|!=)\s*(\S*)")
_COMMA_OUTSIDE = re.compile(r",(?![^(]*\))")
_META_FIELDS = ("metadata.name", "metadata.namespace")


def label_selector(text: str) -> Holds:
    """Returns whether labels match.

    Raises:
        ApiFailure: it is none.
    """
    parts = [_label_part(part.strip()) for part in _COMMA_OUTSIDE.split(text) if part.strip()]

    def holds(content: Mapping[str, Any]) -> bool:
        labels = content["metadata"].get("labels") or {}
        return all(part(labels) for part in parts)

    return holds


def _label_part(text: str) -> Holds:
    found = _SET.fullmatch(text)
    if found is not None:
        key, values = found[1], {value.strip() for value in found[3].split(",")}
        if found[2] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    found = _COMPARED.fullmatch(text)
    if found is not None:
        key, value = found[1], found[3]
        if found[2] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if text.startswith("!"):
        return lambda labels: text[1:] not in labels
    if re.fullmatch(r"[\w./-]+", text):
        return lambda labels: text in labels
    raise bad_request(f"unable to parse requirement {text!r}")


def field_selector(kind: Kind, text: str) -> Holds:
    """Returns whether fields match.

    Raises:
        ApiFailure: it is none, or names a field that this kind cannot be selected by.
    """
    parts: list[Holds] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        found = _COMPARED.fullmatch(part)
        if found is None:
            raise bad_request(f"invalid field selector: {part!r}")
        if found[1] not in (*_META_FIELDS, *kind.fields):
            raise bad_request(f"field label not supported: {found[1]}")
        parts.append(_field_part(found[1].split("."), found[3], found[2] != "!="))
    return lambda content: all(part(content) for part in parts)


def _field_part(path: list[str], value: str, is_equal: bool) -> Holds:
    def holds(content: Mapping[str, Any]) -> bool:
        found: Any = content
        for key in path:
            found = found.get(key) if isinstance(found, Mapping) else None
        return ((found or "") == value) is is_equal

    return holds
