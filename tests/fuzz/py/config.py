"""A config file: read whole, the same again, or refused with one sentence."""

import json

from msgspec import inspect

from deviceplugin.config import schema
from deviceplugin.config.loading import parse_config
from deviceplugin.config.overrides import FLAG_NAMES, said_flags
from fuzz.shapes import Shapes, words_of
from libvgpu.errors import ConfigError, UsageError

_FILE = inspect.type_info(schema.ConfigFile)
_WORDS = [
    *dict.fromkeys(words_of(_FILE)),
    *("v1", "nvidia.com", "vgpu", "mps", "1Gi", "0.5", "60%", "all", "0:1", "none", "single"),
    *("mixed", "strict", "report", "1h30m", "nvidia.com/gpu", "GPU-1", "NVIDIA A100*", "1g.5gb"),
    *("envvar", "volume-mounts", "uuid", "index", "packed", "0o17", "true", "1e3", "y", "{}"),
]


def one(data: bytes) -> None:
    """Reads one, as text or made of known keys, with or without flags over it."""
    shapes = Shapes(data)
    how = shapes.byte()
    count = 2 if how & 7 == 7 else 0
    flags = {shapes.pick(FLAG_NAMES).variables[0]: shapes.text(_WORDS) for _ in range(count)}
    if how & 128:
        text = shapes.rest().decode("utf-8", "replace")
    else:
        text = json.dumps({"version": "v1", **_mapping(shapes)}, ensure_ascii=bool(how & 4))
    text = text.encode("utf-8", "replace").decode()  # as a file is read
    try:
        said = said_flags({}, flags)
        config = parse_config(text, said=said, was_in_force=bool(how & 8))
    except (ConfigError, UsageError):
        return
    again = parse_config(config.text, said=said, was_in_force=bool(how & 8))
    assert again.digest == config.digest
    assert (again.fractional, again.rules) == (config.fractional, config.rules)


def _mapping(shapes: Shapes) -> dict[str, object]:
    found = shapes.like(_FILE, _WORDS)
    return found if isinstance(found, dict) else {"limits": found}
