"""All that is wrong with a config text, where reading it would stop at the first.

The value that is wrong is taken out, and the rest is read again. What then is missing only since it
was taken out is no problem of its own: it is taken out, too, and not told of. Pure.
"""

import re
from dataclasses import replace
from typing import Any

from libvgpu.errors import ConfigError
from libvgpu.places import Places
from libvgpu.yamltext import parse

from .loading import config_of

_MOST = 100
_INDEX = re.compile(r"\[(\d+)\]")


def problems(text: str, name: str) -> tuple[ConfigError, ...]:
    """Returns what is wrong with a config text, at most 100 problems, in the order of their lines.

    Args:
        name: what to call it in messages.
    """
    try:
        data, places = parse(text, name)
    except ConfigError as error:  # not YAML: nothing after that place is known
        return (error,)
    found: list[tuple[int, ConfigError]] = []
    taken: list[str] = []
    shifts: list[tuple[str, int]] = []
    while len(found) < _MOST:
        try:
            config_of(data, replace(places, lines=dict(places.lines), said_by={}), text)
            break
        except ConfigError as error:
            path, message = error.path, error.message
            told = _unshifted(path, shifts)
            if not any(f"{each}.".startswith((f"{told}.", f"{told}[")) for each in taken):
                message = message.replace(path[2:], told[2:]) if path[2:] else message
                found.append((places.line(path), ConfigError(message, error.hint, told)))
            out = _take_out(data, path)
        if out is None:
            break
        taken.append(_unshifted(out, shifts))
        if at := re.fullmatch(r"(.*)\[(\d+)\]", out):
            shifts.append((at[1], int(at[2])))
            places = _without(places, at[1], int(at[2]))
    return tuple(error for _, error in sorted(found, key=lambda each: each[0]))


def _take_out(data: Any, path: str) -> str | None:
    """Takes a value out of ``data``, or what is around it; returns its path, None for all of it."""
    holder, key, at, done = None, None, data, 1
    while done < len(path):
        rest, step = path[done:], None
        if isinstance(at, list) and (match := _INDEX.match(rest)) and int(match[1]) < len(at):
            step, used = int(match[1]), match.end()
        elif isinstance(at, dict):  # a key may have dots in it
            keys = [k for k in at if re.match(rf"\.{re.escape(k)}(?:[.\[]|$)", rest)]
            if keys:
                step = max(keys, key=len)
                used = 1 + len(step)
        if step is None:
            break
        holder, key, at, done = at, step, at[step], done + used
    if holder is None:
        return None
    del holder[key]
    return path[:done]


def _without(places: Places, listed: str, index: int) -> Places:
    """Returns the places once an item of a list is not there."""
    lines = {}
    for path, line in places.lines.items():
        match = _INDEX.match(path, len(listed)) if path.startswith(f"{listed}[") else None
        if match is None or int(match[1]) < index:
            lines[path] = line
        elif int(match[1]) > index:
            lines[f"{listed}[{int(match[1]) - 1}]{path[match.end() :]}"] = line
    return replace(places, lines=lines)


def _unshifted(path: str, shifts: list[tuple[str, int]]) -> str:
    """Returns a path as it was before items of lists were taken out."""
    for listed, index in reversed(shifts):
        match = _INDEX.match(path, len(listed)) if path.startswith(f"{listed}[") else None
        if match is not None and int(match[1]) >= index:
            path = f"{listed}[{int(match[1]) + 1}]{path[match.end() :]}"
    return path
