"""Applies the part of JSON Patch (RFC 6902) that the webhook uses, to a copy."""

import copy
from collections.abc import Sequence
from typing import Any


def applied(document: dict[str, Any], operations: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the document after some ``add`` operations.

    Raises:
        KeyError: a parent of what is added is not there.
    """
    changed = copy.deepcopy(document)
    for each in operations:
        assert each["op"] == "add"
        *parents, last = (
            part.replace("~1", "/").replace("~0", "~") for part in each["path"].split("/")[1:]
        )
        node: Any = changed
        for part in parents:
            node = node[int(part)] if isinstance(node, list) else node[part]
        value = copy.deepcopy(each["value"])
        if isinstance(node, list):
            assert last == "-"
            node.append(value)
        else:
            node[last] = value
    return changed
