"""Output of `vgpuctl … -o json` held against the schemas that are shipped for it."""

import copy
import json
from typing import Any

import jsonschema

from vgpuctl.output.schemas import file_name

from . import ROOT


def shipped(verb: str) -> dict[str, Any]:
    """Returns the schema of a verb."""
    found = json.loads((ROOT / "docs/schemas" / file_name(verb)).read_text())
    assert isinstance(found, dict)
    return found


def check(verb: str, output: str) -> list[dict[str, Any]]:
    """Returns the objects of an output that has what its schema says, and no key besides."""
    strict = copy.deepcopy(shipped(verb))
    for kind in strict["$defs"].values():
        kind["additionalProperties"] = False
    found = json.loads(output)
    jsonschema.Draft202012Validator(strict).validate(found)
    return list(found)
