"""JSON for files that people read and compare: what fits is one line, and so is each row of a list.

``python -m libvgpu.json_rows FILE…`` writes files in this form.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_WIDTH = 120


def to_rows(value: Any) -> str:
    """Returns a value as the text of a file."""
    return _text(value, 0, 0) + "\n"


def _text(value: Any, depth: int, before: int, *, in_list: bool = False) -> str:
    """Returns a value whose first line has ``before`` characters in front of it."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list | tuple) or before + len(f"{line},") <= _WIDTH:
        return line
    pad = " " * (depth + 1)
    if isinstance(value, dict):
        if in_list and _is_flat(list(value.values())):
            return line
        keys = [f"{pad}{json.dumps(key, ensure_ascii=False)}: " for key in value]
        parts = [
            key + _text(each, depth + 1, len(key))
            for key, each in zip(keys, value.values(), strict=True)
        ]
        return "{\n" + ",\n".join(parts) + f"\n{pad[1:]}}}"
    if _is_flat(value):
        lines = [pad + each for each in _filled(value, _WIDTH - len(pad))]
    else:
        lines = [pad + _text(each, depth + 1, len(pad), in_list=True) for each in value]
    return "[\n" + ",\n".join(lines) + f"\n{pad[1:]}]"


def _is_flat(values: Sequence[Any]) -> bool:
    return not any(isinstance(each, dict | list | tuple) and each for each in values)


def _filled(values: Sequence[Any], width: int) -> Iterator[str]:
    """Yields lines with as many values as fit."""
    line = ""
    for text in (json.dumps(each, ensure_ascii=False) for each in values):
        if line and len(f"{line}, {text},") > width:
            yield line
            line = ""
        line = f"{line}, {text}" if line else text
    yield line


def main(paths: Sequence[str]) -> None:
    """Writes files in this form."""
    for path in map(Path, paths):
        path.write_text(to_rows(json.loads(path.read_text())))


if __name__ == "__main__":
    main(sys.argv[1:])
