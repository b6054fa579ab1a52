"""Output of `vgpuctl … -o json` held against the schemas that are shipped for it."""

import copy
import json
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from vgpuctl.output.schemas import file_name, verb_of

from . import ROOT


def shipped(output: str) -> dict[str, Any]:
    """Returns the schema of an output."""
    found = json.loads((ROOT / "docs/schemas" / file_name(output)).read_text())
    assert isinstance(found, dict)
    return found


def _strict(output: str) -> dict[str, Any]:
    """Returns a schema that takes no other key below its objects, to which others may add keys."""
    strict = copy.deepcopy(shipped(output))
    objects = json.dumps(strict["items"])
    for name, kind in strict.get("$defs", {}).items():
        if f'"#/$defs/{name}"' not in objects:
            kind["additionalProperties"] = False
    return strict


def check(output: str, text: str) -> list[dict[str, Any]]:
    """Returns the objects of an output that has what its schema says, and no key besides."""
    verb = verb_of(output)
    parts: Registry[Any] = Registry().with_resource(
        file_name(verb), DRAFT202012.create_resource(_strict(verb))
    )
    strict = _strict(output)
    strict["items"]["unevaluatedProperties"] = False
    found = json.loads(text)
    Draft202012Validator(strict, registry=parts).validate(found)
    return list(found)
