"""The config texts that a path means: a file, stdin, a directory or a ConfigMap's manifest."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from libvgpu.errors import ConfigError
from libvgpu.yamltext import parse, read

_STDIN = Path("-")
#: A text that begins on the next line, and keeps its lines.
_BLOCK = re.compile(r":\s+\|[-+\d]*\s*(#.*)?$")


def config_texts(path: Path) -> Iterator[tuple[str, str]]:
    """Yields name and text of each config.

    Args:
        path: ``-`` is stdin; a directory has a file for each named config, and so has the ``data``
            of a ConfigMap.

    Raises:
        ConfigError: there is none, or it cannot be read.
    """
    from deviceplugin.config.source import config_names

    if path == _STDIN:
        yield from _of_text("stdin", sys.stdin.read())
        return
    if not path.is_dir():
        yield from _of_text(str(path), read(path))
        return
    names = sorted(config_names(path))
    if not names:
        raise ConfigError(f"{path} has no config; it must have one file for each named config")
    for name in names:
        yield str(path / name), read(path / name)


def _of_text(name: str, text: str) -> Iterator[tuple[str, str]]:
    try:
        data, places = parse(text, name)
    except ConfigError:  # which its check will say
        data = None
    if not isinstance(data, dict) or data.get("kind") != "ConfigMap":
        yield name, text
        return
    configs = data.get("data")
    if not isinstance(configs, dict) or not configs:
        raise places.error("$.data", "the ConfigMap has no data; give it a key for each config")
    lines = text.splitlines()
    for key, config in configs.items():
        line = places.line(f"$.data.{key}")
        if not isinstance(config, str):
            raise places.error(f"$.data.{key}", f"data.{key} must be a text: put | behind the key")
        above = line if _BLOCK.search(lines[line - 1]) else line - 1
        yield f"{name} ({key})", "\n" * above + config  # so lines are those of the manifest
