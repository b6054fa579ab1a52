"""YAML with places: the data of a file plus the line on which each of its values stands.

`parse` returns the plain data (`yaml_builder`) and `Places`, which maps a path such as
``$.sharing.fractional[0].family`` (the form msgspec uses in its messages) to a line.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from .errors import ConfigError
from .yaml_builder import TOO_DEEP, Builder

#: Characters of what is said of a value, which log, Events and doctor show whole.
_MOST_SENTENCE = 800


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
        if len(sentence) > _MOST_SENTENCE:  # a value is long; the end says what is allowed
            half = _MOST_SENTENCE // 2
            sentence = f"{sentence[:half]} … {sentence[-half:]}"
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
        ConfigError: not YAML, a key occurs twice in one mapping, or it is too deep or too large.
    """
    places = Places(name)
    try:
        return Builder(text, name, places.lines).document(), places
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        # libyaml reads ahead and gives up by itself where brackets nest very deeply.
        is_deep = "nesting depth" in str(error.problem)
        said = TOO_DEEP if is_deep else f"not YAML: {error.problem}"
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
