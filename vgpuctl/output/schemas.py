"""JSON Schemas of the types, and whether one may follow another under the same version. Pure."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from deviceplugin.pages.slices import VERSION, NodeSlices

from ..render import OUTPUT_VERSION
from . import facts, rows, simulated

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_REF = "#/$defs/{name}"
_TEXTS = ("description", "title")
#: verb -> the objects that its list has.
OUTPUTS: Mapping[str, tuple[type, ...]] = {
    "ps": (rows.PsRow,),
    "status": (rows.StatusRow,),
    "describe": (facts.Container, facts.Gpu),
    "set": (rows.SetRow,),
    "events": (rows.EventRow,),
    "metrics": (rows.MetricRow,),
    "doctor": (rows.DoctorRow,),
    "config show": (rows.ConfigShowRow,),
    "sim list": (simulated.SimListRow,),
}
_PLUGIN = "kubectl-"
#: What `kubectl vgpu` writes: the objects of the verb of the same name, each with its node.
NODE_OUTPUTS = tuple(_PLUGIN + verb for verb in ("ps", "status", "describe", "doctor", "set"))
_NODE = {"node": {"description": "Its name.", "type": "string"}}
#: page of the agent -> the object that it is. Newer programs read older pages, too.
PAGES: Mapping[str, type] = {"agent-slices": NodeSlices}


def schema_of(verb: str) -> dict[str, Any]:
    """Returns the schema of what ``vgpuctl VERB -o json`` writes: a list of objects."""
    items, components = msgspec.json.schema_components(OUTPUTS[verb], ref_template=_REF)
    one = items[0] if len(items) == 1 else {"anyOf": list(items)}
    return _list_of(f"vgpuctl {verb}", one) | {"$defs": components}


def schema_of_nodes(output: str) -> dict[str, Any]:
    """Returns the schema of one of `NODE_OUTPUTS`; it refers to the file of `schema_of`."""
    verb = verb_of(output)
    one = {"$ref": f"{file_name(verb)}#/items", "properties": _NODE, "required": list(_NODE)}
    return _list_of(f"kubectl vgpu {verb}", one)


def verb_of(output: str) -> str:
    """Returns the verb of `OUTPUTS` whose objects an output has."""
    return output.removeprefix(_PLUGIN)


def _list_of(typed: str, one: Mapping[str, Any]) -> dict[str, Any]:
    title = f"{typed} -o json, version {OUTPUT_VERSION}"
    return {"$schema": _DRAFT, "title": title, "type": "array", "items": one}


def schema_of_page(page: str) -> dict[str, Any]:
    """Returns the schema of what the agent answers, an object."""
    (one,), components = msgspec.json.schema_components([PAGES[page]], ref_template=_REF)
    title = f"the node agent's page of {page.removeprefix('agent-')}, version {VERSION}"
    made = {"$schema": _DRAFT, "title": title, **one, "$defs": components}
    return dict(json.loads(json.dumps(made)))  # a default may be a tuple


def page_file_name(page: str) -> str:
    """Returns how the file of a page's schema is called."""
    return f"{page}.v{VERSION}.json"


def file_name(output: str) -> str:
    """Returns how the file of a schema is called."""
    return f"{output.replace(' ', '-')}.v{OUTPUT_VERSION}.json"


def breaks(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yields what a program that was written by the schema ``old`` can no longer count on.

    Keys and types may be added, words of an enumeration too; texts may change.
    """
    if any(_meaning(old.get(key)) != _meaning(new.get(key)) for key in ("items", "$ref")):
        yield "its objects are others"
    for kind, was in old.get("$defs", {}).items():
        now = new["$defs"].get(kind)
        if now is None:
            yield f"{kind} is gone"
            continue
        for key, value in was.get("properties", {}).items():
            if key not in now["properties"]:
                yield f"{kind}.{key} is gone"
            elif not _is_wider(_meaning(value), _meaning(now["properties"][key])):
                yield f"{kind}.{key} has another form"
        required = set(was.get("required", ())), set(now.get("required", ()))
        for key in sorted(required[0] & set(now.get("properties", ())) - required[1]):
            yield f"{kind}.{key} may be absent"


def demands(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yields what who reads by ``new`` demands of pages that were written by ``old``."""
    for kind, now in new["$defs"].items():
        was = old["$defs"].get(kind, now)
        for key in sorted(set(now.get("required", ())) - set(was.get("required", ()))):
            yield f"{kind}.{key} is demanded of pages that lack it"


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
