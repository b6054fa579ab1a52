"""Every value of a config as it counts, and where it comes from. Pure.

A key that nobody gave has its default. Lists and mappings that are empty are one value.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from deviceplugin.model.agent_config import AgentConfig
from deviceplugin.pages.config import ConfigValue
from libvgpu.places import Places
from libvgpu.yamltext import parse

from . import schema
from .loading import checked_file

DEFAULT = "default"


def effective(config: AgentConfig) -> list[ConfigValue]:
    """Returns the values in the order of the schema; what is absent and means nothing is not."""
    data, places = parse(config.text, config.places.name)
    file, places = checked_file(data, places, config.said)
    whole = msgspec.structs.replace(
        file, flags=file.flags or schema.Flags(), sharing=file.sharing or schema.Sharing()
    )
    return list(_leaves(msgspec.to_builtins(whole), "$", places))


def _leaves(value: Any, path: str, places: Places) -> Iterator[ConfigValue]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}", places)
    elif isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{index}]", places)
    elif value is not None:
        yield ConfigValue(path[2:], value, _origin(path, places))


def _origin(path: str, places: Places) -> str:
    if path in places.said_by:
        return places.said_by[path]
    return f"line {places.lines[path]}" if path in places.lines else DEFAULT
