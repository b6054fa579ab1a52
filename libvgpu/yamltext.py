"""YAML with places: the data of a file plus the line on which each of its values stands.

`parse` returns the plain data, as JSON could have it, keys as written, and `Places`, which maps a
path such as ``$.sharing.fractional[0].family`` (the form msgspec uses in its messages) to a line.

The data is built from the parser's events, with a stack of its own. So a text that nests deeply or
that multiplies by aliases is refused with a line, whatever it holds, and so is a key that stands
twice in a mapping.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from .errors import ConfigError
from .places import Places

#: Lists and mappings in each other; whatever walks the data may recurse so deep.
MOST_DEPTH = 100
_TOO_DEEP = f"lists and mappings are nested more than {MOST_DEPTH} deep, the most that is read"
#: Values, those of aliases counted at each use. A ConfigMap's 1 MiB cannot hold as many.
MOST_VALUES = 1_000_000
_MOST_INTEGER = (1 << 63) - 1
_MOST_DIGITS = 1000  # of which Python still makes a number
_TAG = "tag:yaml.org,2002:"


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """PyYAML's loader without numbers to base 60: ``1:2`` is text, as in YAML 1.2.

    MIG devices are named like that.
    """


_NUMBERS = {
    "tag:yaml.org,2002:int": re.compile(
        r"[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]+|0|[1-9][0-9_]*)$"
    ),
    "tag:yaml.org,2002:float": re.compile(
        r"([-+]?([0-9][0-9_]*\.[0-9_]*([eE][-+][0-9]+)?|\.[0-9][0-9_]*([eE][-+][0-9]+)?|"
        r"\.(inf|Inf|INF))|\.(nan|NaN|NAN))$"
    ),
}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, _NUMBERS.get(tag, pattern)) for tag, pattern in resolvers]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
#: How scalars are read; a date, ``=`` and ``<<`` as a value are the texts that they are.
_SCALARS = {
    f"{_TAG}null": yaml.SafeLoader.construct_yaml_null,
    f"{_TAG}bool": yaml.SafeLoader.construct_yaml_bool,
    f"{_TAG}int": yaml.SafeLoader.construct_yaml_int,
    f"{_TAG}float": yaml.SafeLoader.construct_yaml_float,
    **dict.fromkeys(
        (f"{_TAG}str", f"{_TAG}timestamp", f"{_TAG}value", f"{_TAG}merge"),
        yaml.SafeLoader.construct_yaml_str,
    ),
}
_COLLECTIONS = (None, "!", f"{_TAG}seq", f"{_TAG}map")


@dataclass(frozen=True, slots=True)
class _Built:
    """A finished value, with how many values it has in all and how deep it is."""

    value: Any
    count: int = 1
    depth: int = 0


@dataclass(slots=True)
class _Open:
    """A list or mapping that has not ended yet."""

    path: str
    anchor: str | None
    is_mapping: bool
    items: list[Any] = field(default_factory=list)
    mapping: dict[str, Any] = field(default_factory=dict)
    merged: list[Any] = field(default_factory=list)
    key_lines: dict[str, int] = field(default_factory=dict)
    key: str | None = None
    is_merge: bool = False
    count: int = 1
    depth: int = 1

    def value(self) -> Any:
        if not self.is_mapping:
            return self.items
        found: dict[str, Any] = {}
        for each in reversed(self.merged):
            found.update(each)
        found.update(self.mapping)
        return found


class _Builder:
    """Builds the data of one document from its events."""

    def __init__(self, text: str, name: str, lines: dict[str, int]) -> None:
        """Reads nothing yet.

        Args:
            name: what to call the text in messages.
            lines: filled with the line of each value, by its path.
        """
        self._loader = _Loader(text)
        self._name, self._lines = name, lines
        self._open: list[_Open] = []
        self._anchors: dict[str, _Built | None] = {}  # None while what it names has not ended
        self._root: Any = None
        self._documents = 0

    def document(self) -> Any:
        """Returns the data; None for a text without any.

        Raises:
            ConfigError: it is not read, for one of the reasons above.
            yaml.YAMLError: it is not YAML.
        """
        while self._loader.check_event():
            event = self._loader.get_event()
            if isinstance(event, yaml.DocumentStartEvent):
                self._documents += 1
                if self._documents > 1:
                    raise self._wrong(event, "a second document begins here; give one")
            elif isinstance(event, yaml.CollectionEndEvent):
                self._end(event)
            elif isinstance(event, yaml.NodeEvent):
                self._node(event)
        return self._root

    def _node(self, event: Any) -> None:
        top = self._open[-1] if self._open else None
        if top is not None and top.is_mapping and top.key is None:
            self._begin_key(top, event)
            return
        path = self._path(top)
        self._lines.setdefault(path, event.start_mark.line + 1)
        if isinstance(event, yaml.AliasEvent):
            self._add(self._alias(event), event)
        elif isinstance(event, yaml.ScalarEvent):
            built = _Built(self._scalar(event))
            if event.anchor is not None:
                self._anchors[event.anchor] = built
            self._add(built, event)
        else:
            if event.tag not in _COLLECTIONS:
                raise self._wrong(event, f"tag {_shown(event.tag)} is not read; leave it out")
            if event.anchor is not None:
                self._anchors[event.anchor] = None
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            self._open.append(_Open(path, event.anchor, is_mapping))
            self._check_depth(0, event)

    def _path(self, top: _Open | None) -> str:
        if top is None:
            return "$"
        return f"{top.path}.{top.key}" if top.is_mapping else f"{top.path}[{len(top.items)}]"

    def _begin_key(self, top: _Open, event: Any) -> None:
        if isinstance(event, yaml.AliasEvent):
            named = self._alias(event).value
            text = named if isinstance(named, str) else None
        else:
            text = event.value if isinstance(event, yaml.ScalarEvent) else None
        if text is None:
            raise self._wrong(event, "a key is not text; allowed are words, in quotes or without")
        line = event.start_mark.line + 1
        if text in top.key_lines:
            raise self._wrong(
                event,
                f"key {text!r} occurs twice in one mapping, first on line {top.key_lines[text]}; "
                "give it once",
            )
        top.key_lines[text] = line
        top.key = text
        top.is_merge = text == "<<" and getattr(event, "implicit", (False,))[0]
        self._lines[f"{top.path}.{text}"] = line

    def _alias(self, event: Any) -> _Built:
        if event.anchor not in self._anchors:
            raise self._wrong(event, f"alias *{event.anchor} names nothing above it")
        built = self._anchors[event.anchor]
        if built is None:
            raise self._wrong(event, f"alias *{event.anchor} stands in what it names")
        return built

    def _end(self, event: Any) -> None:
        done = self._open.pop()
        built = _Built(done.value(), done.count, done.depth)
        if done.anchor is not None:
            self._anchors[done.anchor] = built
        self._add(built, event)

    def _add(self, built: _Built, event: Any) -> None:
        self._check_depth(built.depth, event)
        top = self._open[-1] if self._open else None
        if top is None:
            self._root = built.value
            return
        top.count += built.count
        top.depth = max(top.depth, built.depth + 1)
        if top.count > MOST_VALUES:
            raise self._wrong(
                event,
                f"the text has more than {MOST_VALUES} values, those of an alias counted at each "
                "use; fewer are read",
            )
        if not top.is_mapping:
            top.items.append(built.value)
            return
        if top.is_merge:
            sources = built.value if isinstance(built.value, list) else [built.value]
            if not all(isinstance(each, dict) for each in sources):
                raise self._wrong(event, "<< takes a mapping, or a list of them")
            top.merged += sources
        elif top.key is not None:
            top.mapping[top.key] = built.value
        top.key, top.is_merge = None, False

    def _check_depth(self, below: int, event: Any) -> None:
        if len(self._open) + below > MOST_DEPTH:
            raise self._wrong(event, _TOO_DEEP)

    def _scalar(self, event: Any) -> Any:
        text, tag = event.value, event.tag
        if tag is None or tag == "!":
            tag = self._loader.resolve(yaml.ScalarNode, text, event.implicit)
        read = _SCALARS.get(tag)
        if read is None:
            raise self._wrong(event, f"tag {_shown(tag)} is not read; leave it out")
        if "\0" in text or (not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text)):
            raise self._wrong(
                event, f"text {text[:40]!r} has a character that is not allowed in text"
            )
        node = yaml.ScalarNode(tag, text, event.start_mark, event.end_mark)
        try:
            value = read(self._loader, node)
        except (ValueError, KeyError, IndexError):
            kind = tag.removeprefix(_TAG)
            if kind == "int" and len(text) > _MOST_DIGITS:
                raise self._too_large(event) from None
            raise self._wrong(event, f"{text[:40]!r} cannot be read as {kind}") from None
        if type(value) is int and not -_MOST_INTEGER <= value <= _MOST_INTEGER:
            raise self._too_large(event)
        return value

    def _too_large(self, event: Any) -> ConfigError:
        shown = event.value if len(event.value) <= 40 else f"{event.value[:40]}…"
        return self._wrong(
            event, f"{shown} is too large a number; allowed are up to {_MOST_INTEGER}"
        )

    def _wrong(self, event: Any, sentence: str) -> ConfigError:
        return ConfigError(f"{self._name} line {event.start_mark.line + 1}: {sentence}")


def _shown(tag: str) -> str:
    return tag.replace(_TAG, "!!")[:60]


def parse(text: str, name: str) -> tuple[Any, Places]:
    """Returns the data of a YAML text and the places of its values.

    Args:
        text: one YAML document.
        name: what to call it in messages.

    Raises:
        ConfigError: not YAML, a key occurs twice in one mapping, or it is too deep or too large.
    """
    places = Places(name)
    try:
        return _Builder(text, name, places.lines).document(), places
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        # libyaml reads ahead and gives up by itself where brackets nest very deeply.
        is_deep = "nesting depth" in str(error.problem)
        said = _TOO_DEEP if is_deep else f"not YAML: {error.problem}"
        raise ConfigError(f"{name} line {line}: {said}") from None
    except yaml.reader.ReaderError as error:
        at = text.find(chr(error.character))  # libyaml's own position counts bytes
        line = text.count("\n", 0, at) + 1
        raise ConfigError(
            f"{name} line {line}: not YAML: character {error.character:#04x} may not stand in it"
        ) from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: not YAML: {' '.join(str(error).split())}") from None


def read(path: Path, kind: str = "config file") -> str:
    """Returns the text of a file; ``kind`` says in messages what it ought to be.

    Raises:
        ConfigError: it cannot be read or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{kind} {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{kind} {path} is not UTF-8 text") from None
