"""JSON Schemas of the types, and whether one may follow another under the same version. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ..render import OUTPUT_VERSION
from . import facts, rows

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_TEXTS = ("description", "title")
#: verb -> the objects that its list has.
OUTPUTS: Mapping[str, tuple[type, ...]] = {
    "ps": (rows.PsRow,),
    "status": (rows.StatusRow,),
    "describe": (facts.Container, facts.Gpu),
    "set": (rows.SetRow,),
    "events": (rows.EventRow,),
    "metrics": (rows.MetricRow,),
    "kubectl-ps": (rows.NodePsRow,),
    "kubectl-status": (rows.NodeStatusRow,),
    "kubectl-describe": (facts.NodeContainer, facts.NodeGpu),
    "kubectl-doctor": (rows.NodeDoctorRow,),
}
#: What such a verb begins with, and what is typed before the verb itself.
_PLUGIN = "kubectl-", "kubectl vgpu "


def schema_of(verb: str) -> dict[str, Any]:
    """Returns the schema of what ``vgpuctl VERB -o json`` writes: a list of objects."""
    items, components = msgspec.json.schema_components(OUTPUTS[verb], ref_template="#/$defs/{name}")
    one = items[0] if len(items) == 1 else {"anyOf": list(items)}
    return {
        "$schema": _DRAFT,
        "title": f"{_typed(verb)} -o json, version {OUTPUT_VERSION}",
        "type": "array",
        "items": one,
        "$defs": components,
    }


def _typed(verb: str) -> str:
    beginning, program = _PLUGIN
    if verb.startswith(beginning):
        return program + verb.removeprefix(beginning)
    return f"vgpuctl {verb}"


def file_name(verb: str) -> str:
    """Returns how the file of a verb's schema is called."""
    return f"{verb}.v{OUTPUT_VERSION}.json"


def breaks(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yields what a program that was written by the schema ``old`` can no longer count on.

    Keys and types may be added, words of an enumeration too; texts may change.
    """
    if _meaning(old["items"]) != _meaning(new["items"]):
        yield "its objects are others"
    for kind, was in old["$defs"].items():
        now = new["$defs"].get(kind)
        if now is None:
            yield f"{kind} is gone"
            continue
        for key, value in was["properties"].items():
            if key not in now["properties"]:
                yield f"{kind}.{key} is gone"
            elif not _is_wider(_meaning(value), _meaning(now["properties"][key])):
                yield f"{kind}.{key} has another form"
        for key in set(was["required"]) & set(now["properties"]) - set(now["required"]):
            yield f"{kind}.{key} may be absent"


def _meaning(value: Any) -> Any:
    """Returns a part of a schema without its texts."""
    if isinstance(value, list):
        return [_meaning(each) for each in value]
    if isinstance(value, Mapping):
        return {key: _meaning(each) for key, each in value.items() if key not in _TEXTS}
    return value


def _is_wider(old: Any, new: Any) -> bool:
    """Returns whether they are the same but for words that an enumeration has got."""
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_is_wider, old, new))
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)) or old.keys() != new.keys():
        return bool(old == new)
    return all(
        set(old[key]) <= set(new[key]) if key == "enum" else _is_wider(old[key], new[key])
        for key in old
    )
