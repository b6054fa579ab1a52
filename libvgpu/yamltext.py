"""YAML with places: the data of a file plus the line on which each of its values stands.

`parse` returns the plain data (`yaml_builder`) and `Places`, which maps a path such as
``$.sharing.fractional[0].family`` (the form msgspec uses in its messages) to a line.
"""

from pathlib import Path
from typing import Any

import yaml

from .errors import ConfigError
from .places import Places
from .yaml_builder import TOO_DEEP, Builder


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
