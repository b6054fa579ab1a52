"""YAML with places: the data of a file plus the line on which each of its values stands.

PyYAML forgets where a value came from and lets a later duplicate key silently win. Here the node
tree gives both: `parse` returns the plain data and `Places`, which maps a path such as
``$.sharing.fractional[0].family`` (the form msgspec uses in its messages) to a line.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from .errors import ConfigError


class _Loader(yaml.SafeLoader):
    """PyYAML's, but for numbers to base 60: ``1:2`` is a text, as for every later parser.

    MIG devices are called so.
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


@dataclass(frozen=True, slots=True)
class Places:
    """Where the values of one file stand.

    Attributes:
        name: the file, as messages name it.
        lines: path of a value -> line, from 1.
        said_by: path of a value that somebody else put over the file's -> whom messages name.
        was_in_force: the text was accepted before, perhaps by an earlier version.
    """

    name: str
    lines: dict[str, int] = field(default_factory=dict)
    said_by: dict[str, str] = field(default_factory=dict)
    was_in_force: bool = False

    def line(self, path: str) -> int:
        """Returns the line of ``path``, or of the nearest value around it."""
        while path not in self.lines and path != "$":
            path = path[: max(path.rfind("."), path.rfind("["))] or "$"
        return self.lines.get(path, 1)

    def error(self, path: str, sentence: str, hint: str | None = None) -> ConfigError:
        """Returns the error that says ``sentence`` about the value at ``path``."""
        other = next((by for at, by in self.said_by.items() if path.startswith(at)), None)
        where = other or f"{self.name} line {self.line(path)}"
        return ConfigError(f"{where}: {sentence}", hint)

    def one_of(self, path: str, value: str, allowed: Iterable[str]) -> None:
        """Holds the value at ``path`` against those ``allowed``.

        Raises:
            ConfigError: it is none of them.
        """
        if value not in (names := list(allowed)):
            raise self.error(path, f"{path[2:]} is {value!r}, allowed are: {', '.join(names)}")


def parse(text: str, name: str) -> tuple[Any, Places]:
    """Returns the data of a YAML text and the places of its values.

    Args:
        text: one YAML document.
        name: what to call it in messages.

    Raises:
        ConfigError: not YAML, or a key stands twice in one mapping.
    """
    places = Places(name)
    try:
        root = yaml.compose(text, Loader=_Loader)
        data = yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise ConfigError(f"{name} line {line}: not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: not YAML: {' '.join(str(error).split())}") from None
    if root is not None:
        _note_places(root, "$", places, set())
    return data, places


def _note_places(node: yaml.Node, path: str, places: Places, seen: set[int]) -> None:
    places.lines.setdefault(path, node.start_mark.line + 1)
    if id(node) in seen:  # an alias: its first place is enough, and a chain of them stays cheap
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        keys: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.value in keys:
                raise ConfigError(
                    f"{places.name} line {line}: key {key.value!r} stands twice in one mapping, "
                    f"first on line {keys[key.value]}; give it once"
                )
            keys[key.value] = line
            places.lines[f"{path}.{key.value}"] = line
            _note_places(value, f"{path}.{key.value}", places, seen)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _note_places(item, f"{path}[{index}]", places, seen)


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
