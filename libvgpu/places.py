"""Where in a file each of its values stands, and the errors that name the place."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from .errors import ConfigError

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
        return ConfigError(f"{where}: {sentence}", hint, path)

    def one_of(self, path: str, value: str, allowed: Iterable[str]) -> None:
        """Holds the value at ``path`` against those ``allowed``.

        Raises:
            ConfigError: the value is not one of them.
        """
        if value not in (names := list(allowed)):
            raise self.error(path, f"{path[2:]} is {value!r}, allowed are: {', '.join(names)}")
