"""JSON schemas for kubeconform, made of the swagger.json that an API server publishes, and of the
definitions that bring kinds of others.

One file a kind, with every type that it uses inside. Two things are said more strictly or otherwise
than there: fields that a type does not know are errors, and what the API server reads
from a number as from a text (quantities, ports) may be either.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

#: A definition has thousands of lines, which Python alone reads ten times slower.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PREFIX = "#/definitions/"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_EITHER = {"oneOf": [{"type": "string"}, {"type": "number"}]}


def write(swagger: Path, folder: Path, kinds: Iterable[tuple[str, str]]) -> None:
    """Writes ``<kind>-<first word of group>-<version>.json``, as kubeconform names them.

    Args:
        swagger: the API server's file.
        folder: an existing directory.
        kinds: each as ``apiVersion`` and ``kind``.

    Raises:
        KeyError: the API server does not know such a kind.
    """
    definitions = json.loads(swagger.read_text())["definitions"]
    by_kind = {}
    for name, definition in definitions.items():
        for one in definition.get("x-kubernetes-group-version-kind", ()):
            by_kind["/".join(filter(None, (one["group"], one["version"]))), one["kind"]] = name
    for api_version, kind in kinds:
        wanted, parts = [by_kind[api_version, kind]], dict[str, Any]()
        while wanted:
            name = wanted.pop()
            if name not in parts:
                parts[name] = _EITHER if name == _QUANTITY else _strict(definitions[name], wanted)
        schema = {"$ref": _PREFIX + by_kind[api_version, kind], "definitions": parts}
        (folder / _file_name(api_version, kind)).write_text(json.dumps(schema))


def write_custom(definition: Path, folder: Path) -> None:
    """Writes a file, named as by `write`, for each version of a CustomResourceDefinition.

    Args:
        definition: its YAML.
        folder: an existing directory.
    """
    spec = yaml.load(definition.read_text(), _Loader)["spec"]
    for version in spec["versions"]:
        schema = _strict(version["schema"]["openAPIV3Schema"], [])
        # Every object has metadata; the API server knows its form and the definition says nothing.
        schema["properties"]["metadata"] = {"type": "object"}
        name = _file_name(f"{spec['group']}/{version['name']}", spec["names"]["kind"])
        (folder / name).write_text(json.dumps(schema))


def _file_name(api_version: str, kind: str) -> str:
    *group, version = api_version.split("/")
    return "-".join([kind.lower(), *(part.split(".")[0] for part in group), version]) + ".json"


def _strict(node: Any, wanted: list[str]) -> Any:
    """Returns a copy that refuses unknown fields; adds the types that it names to ``wanted``."""
    if isinstance(node, list):
        return [_strict(each, wanted) for each in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        wanted.append(node["$ref"].removeprefix(_PREFIX))
        return {"$ref": node["$ref"]}
    if node.get("format") == "int-or-string":
        return _EITHER
    copy = {key: _strict(value, wanted) for key, value in node.items()}
    if isinstance(node.get("properties"), dict) and "type" in node:
        copy.setdefault("additionalProperties", False)
    return copy
