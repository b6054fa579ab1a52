"""Values files laid over the chart's own values, as helm does it, and what its schema says."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from support import ROOT

CHART = ROOT / "deploy/chart"


def laid_over(values: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Returns values with others laid over them: mappings are mixed, and None takes a key away."""
    mixed = dict(values)
    for key, value in others.items():
        if value is None:
            mixed.pop(key, None)
        elif isinstance(value, dict) and isinstance(mixed.get(key), dict):
            mixed[key] = laid_over(mixed[key], value)
        else:
            mixed[key] = value
    return mixed


def values_of(file: Path) -> dict[str, Any]:
    """Returns all values that the chart has with a file.

    Raises:
        jsonschema.ValidationError: the chart's schema refuses them.
    """
    own = yaml.safe_load((CHART / "values.yaml").read_text())
    values = laid_over(own, yaml.safe_load(file.read_text()))
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.validate(values, schema, jsonschema.Draft7Validator)
    return values
