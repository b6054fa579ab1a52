"""The data of a config before it is decoded: flags come over it, and spellings become plain. Pure.

Flags go into the data before that is checked, so that one check tells what is wrong with a value,
wherever it comes from.

NVIDIA's plugin turns YAML into JSON and decodes that with Go. There ``null`` means that a key is
not set, ``4.0`` and ``4e0`` are whole numbers, and ``y`` and ``n`` are booleans. `as_written_out`
puts the plain spelling in the place of these, wherever a key takes it; what is wrong stays as it
is, for the decoder to say.
"""

import re
from collections.abc import Iterable
from typing import Any

from msgspec import inspect

from deviceplugin.model.agent_config import SaidFlag
from libvgpu.places import Places

_EXPONENT = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)[eE][-+]?\d{1,3}")
_OCTAL = re.compile(r"0o[0-7]{1,21}")
_BOOLEANS = {"y": True, "Y": True, "n": False, "N": False}
#: Of floats up to here each whole one is one number.
_MOST_WHOLE = float(1 << 53)


def put_over(data: dict[str, Any], places: Places, said: Iterable[SaidFlag]) -> dict[str, Any]:
    """Returns the file's data with flags over it, and notes who said them in ``places``."""
    result = dict(data)
    for flag in said:
        *sections, last = flag.key.split(".")
        section = result
        for name in sections:
            inner = section.get(name)
            if inner is not None and not isinstance(inner, dict):
                return data  # the file is wrong there, which its check will say
            section[name] = section = dict(inner or {})
        section[last] = flag.value
        places.said_by[f"$.{flag.key}"] = flag.said_by
    return result


def as_written_out(
    value: Any, kinds: Iterable[inspect.Type], places: Places, path: str = "$"
) -> Any:
    """Returns a value of the file, and all that is in it, in plain spelling.

    Args:
        kinds: what the value may be.
        places: loses the places of keys that are not set, so that none seems to come from there.
        path: of the value.
    """
    if isinstance(value, dict):
        for kind in kinds:
            if isinstance(kind, inspect.StructType):
                fields = {each.encode_name: each for each in kind.fields}
                found = {}
                for key, inner in value.items():
                    at, known = f"{path}.{key}", fields.get(key)
                    if known is None:
                        found[key] = inner
                    elif inner is None:
                        places.lines.pop(at, None)
                    else:
                        found[key] = as_written_out(inner, _options(known.type), places, at)
                return found
            if isinstance(kind, inspect.DictType):
                each = _options(kind.value_type)
                return {k: as_written_out(v, each, places, f"{path}.{k}") for k, v in value.items()}
    elif isinstance(value, list):
        for kind in kinds:
            if isinstance(kind, inspect.ListType):
                each = _options(kind.item_type)
                return [
                    as_written_out(v, each, places, f"{path}[{i}]") for i, v in enumerate(value)
                ]
    elif isinstance(value, (float, str)):
        return _scalar(value, {type(kind) for kind in kinds})
    return value


def _options(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)


def _scalar(value: float | str, kinds: set[type]) -> Any:
    takes_number = inspect.IntType in kinds or inspect.FloatType in kinds
    if isinstance(value, str):
        if inspect.StrType in kinds:
            return value
        if inspect.BoolType in kinds and value in _BOOLEANS:
            return _BOOLEANS[value]
        if takes_number and _OCTAL.fullmatch(value):
            return int(value, 8)
        if not takes_number or not _EXPONENT.fullmatch(value):
            return value
        number = float(value)
    else:
        number = value
    if inspect.FloatType not in kinds and takes_number and number.is_integer():
        return int(number) if abs(number) <= _MOST_WHOLE else value
    return number if inspect.FloatType in kinds else value
