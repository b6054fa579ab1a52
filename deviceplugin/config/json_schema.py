"""The config file's JSON Schema, made of the types that decode it, for editors and CI.

The types know keys, their kinds and defaults; what words a text may be stands in the enums that
check it, and is added here. A key that need not be there may be ``null``, which means the same.
"""

from enum import StrEnum
from typing import Any

import msgspec

from deviceplugin.model.agent_config import WatchPolicy
from deviceplugin.model.concurrency import Concurrency
from deviceplugin.model.device_forms import IdStrategy, ListStrategy
from deviceplugin.model.fractional import LoneHalves, Placement
from deviceplugin.model.label_settings import LabelTarget
from deviceplugin.model.units import MOST_UNITS_PER_RESOURCE
from deviceplugin.model.whole_devices import MigStrategy, Spread, TimeSlice
from libvgpu.limits import COMPUTE_WORDS
from libvgpu.sizes import PERCENT_PATTERN, SIZE_PATTERN

from . import schema
from .flags import DISCOVERY
from .fractional import FAMILIES
from .label_settings import AUTO

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_COMPUTE = {"enum": [*COMPUTE_WORDS, False, None]}  # a bare off is YAML's word for false
#: Forms that several keys have.
_SHARED = {
    "Size": {"type": "string", "pattern": SIZE_PATTERN},
    "Percent": {"type": "string", "pattern": PERCENT_PATTERN},
}
_SIZE, _PERCENT = ({"$ref": f"#/$defs/{name}"} for name in _SHARED)
_UNSET = {"type": "null"}


def _words(words: type[StrEnum]) -> dict[str, Any]:
    return {"enum": [str(word) for word in words]}


_LISTS = _words(ListStrategy)
#: By type and key.
_ALLOWED: dict[tuple[str, str], dict[str, Any]] = {
    ("ConfigFile", "version"): {"enum": ["v1"]},
    ("Flags", "migStrategy"): _words(MigStrategy),
    ("Flags", "deviceDiscoveryStrategy"): {"enum": list(DISCOVERY)},
    ("PluginFlags", "deviceIDStrategy"): _words(IdStrategy),
    ("PluginFlags", "deviceListStrategy"): {
        "anyOf": [_LISTS, {"type": "array", "items": _LISTS, "minItems": 1}]
    },
    ("PluginFlags", "sharedDevicesAllocationPolicy"): _words(Spread),
    ("TimeSlicing", "timeSlice"): {"enum": [*map(str, TimeSlice), None]},
    ("TimeSlicing", "strategy"): {"enum": [""]},
    ("ReplicatedResource", "replicas"): {
        "type": "integer",
        "minimum": 2,
        "maximum": MOST_UNITS_PER_RESOURCE,
    },
    ("DeviceMatch", "minMemory"): {"anyOf": [_SIZE, _UNSET]},
    ("DeviceMatch", "maxMemory"): {"anyOf": [_SIZE, _UNSET]},
    ("Fractional", "memoryUnit"): _SIZE,
    ("Fractional", "family"): {"enum": list(FAMILIES)},
    ("Fractional", "compute"): _COMPUTE,
    ("Fractional", "concurrency"): {"enum": [*map(str, Concurrency), None]},
    ("Fractional", "placement"): _words(Placement),
    ("Fractional", "loneHalves"): _words(LoneHalves),
    ("Quota", "family"): {"enum": [*FAMILIES, None]},
    ("Quota", "core"): {"anyOf": [{"type": "integer", "minimum": 0}, _PERCENT, _UNSET]},
    ("Quota", "memory"): {"anyOf": [_SIZE, {"enum": [0, "0", None]}]},
    ("Rule", "core"): {
        "anyOf": [{"type": "integer", "minimum": 1, "maximum": 100}, _PERCENT, _UNSET]
    },
    ("Rule", "memory"): {"anyOf": [_SIZE, _UNSET]},
    ("Rule", "compute"): _COMPUTE,
    ("Watch", "unaccounted"): _words(WatchPolicy),
    ("Labels", "writeTo"): {"enum": [AUTO, *map(str, LabelTarget)]},
}


def _or_null(allowed: dict[str, Any]) -> dict[str, Any]:
    """Returns what also takes null: for keys, words and editors' hints stay where they are."""
    if None in allowed.get("enum", ()) or {"type": "null"} in allowed.get("anyOf", ()):
        return allowed
    if "enum" in allowed:
        return allowed | {"enum": [*allowed["enum"], None]}
    if "anyOf" in allowed:
        return allowed | {"anyOf": [*allowed["anyOf"], {"type": "null"}]}
    if isinstance(allowed.get("type"), str):
        return allowed | {"type": [allowed["type"], "null"]}
    default = {name: value for name, value in allowed.items() if name == "default"}
    rest = {name: value for name, value in allowed.items() if name != "default"}
    return default | {"anyOf": [rest, {"type": "null"}]}


def json_schema() -> dict[str, Any]:
    """Returns the schema of a whole file."""
    found = msgspec.json.schema(schema.ConfigFile)
    for (kind, key), allowed in _ALLOWED.items():
        properties = found["$defs"][kind]["properties"]
        default = {name: value for name, value in properties[key].items() if name == "default"}
        properties[key] = default | allowed
    for section in found["$defs"].values():
        for key, allowed in section["properties"].items():
            if key not in section.get("required", ()):
                section["properties"][key] = _or_null(allowed)
    found["$defs"] |= _SHARED
    return {"$schema": _DRAFT, "title": "The node agent's config file, version v1"} | found
