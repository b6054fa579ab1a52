"""The form of the agent's checkpoint: a snapshot and what has changed since, line by line. Pure.

Every line is ``<CRC-32 of the rest, 8 hex digits> <JSON>``. The first says the version and how many
lines of the snapshot follow, one per allocation. After them each line is one change as a whole, of
one or of several allocations: ``{"put": […], "drop": […]}``. A line is on disk before the next is
written, so only the last one can be torn, and it is dropped: that change was never acknowledged.
Anything else that does not fit is damage, and nothing of such a file is believed.

Allocations are written and read by their fields: what a newer agent added is left out, what an
older one did not know has its default. So are moments of the monotonic clock, which no other
process has a use for. A file of version 1 (one JSON document) is read, too.
"""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

import msgspec

from deviceplugin.model.allocations import Allocation
from deviceplugin.pages.changes import OverrideForm
from libvgpu.decoding import converter
from libvgpu.limits import Family

VERSION = 2
_CRC_DIGITS = 8
#: Of the monotonic clock: after a reboot they would mean another time.
_OF_THIS_PROCESS = {"changed_s", "missing_since"}
_FIELDS = tuple(f.name for f in fields(Allocation) if f.name not in _OF_THIS_PROCESS)
_allocation_of, _override_of = converter(Allocation), converter(OverrideForm)


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a file says.

    Attributes:
        allocations: the live ones, the oldest first.
        torn: its last line was torn and is dropped.
    """

    allocations: tuple[Allocation, ...]
    torn: bool


def snapshot(allocations: Iterable[Allocation]) -> bytes:
    """Returns a whole file that says these allocations and nothing else."""
    lines = [_line({"put": [_row(allocation)]}) for allocation in allocations]
    return b"".join([_line({"version": VERSION, "snapshot": len(lines)}), *lines])


def change(put: Iterable[Allocation], drop: Iterable[str]) -> bytes:
    """Returns the line of one change: new or changed allocations, then ids of those that ended."""
    return _line({"put": [_row(allocation) for allocation in put], "drop": list(drop)})


def replay(raw: bytes) -> Replayed:
    """Returns what a file says.

    Raises:
        ValueError: where and how it is damaged.
    """
    if raw.startswith(b"{"):
        return Replayed(_version_1(raw), torn=False)
    lines = raw.split(b"\n")
    torn = bool(lines.pop())  # what follows the last newline
    if not lines:
        raise ValueError("it has not one whole line")
    header = _content(lines[0], 1)
    if header.get("version") != VERSION:
        raise ValueError(f"version {header.get('version')!r}, not {VERSION}")
    in_snapshot = header.get("snapshot")
    if not isinstance(in_snapshot, int):
        raise ValueError("its first line does not say how long the snapshot is")
    live: dict[str, Allocation] = {}
    for number, line in enumerate(lines[1:], start=2):
        try:
            content = _content(line, number)
        except ValueError:
            if number < len(lines) or torn:
                raise
            torn = True
            lines.pop()
            break
        _apply(live, content, number)
    if len(lines) - 1 < in_snapshot:
        raise ValueError(f"it ends after {len(lines) - 1} of {in_snapshot} lines of its snapshot")
    return Replayed(tuple(live.values()), torn)


def _line(content: dict[str, Any]) -> bytes:
    body = msgspec.json.encode({key: value for key, value in content.items() if value != []})
    return b"%08x %s\n" % (zlib.crc32(body), body)


def _content(line: bytes, number: int) -> dict[str, Any]:
    head, body = line[: _CRC_DIGITS + 1], line[_CRC_DIGITS + 1 :]
    if head != b"%08x " % zlib.crc32(body):
        raise ValueError(f"line {number} does not have the CRC it names")
    try:
        content = msgspec.json.decode(body)
    except RecursionError:
        raise ValueError(f"line {number} is nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError(f"line {number} is not an object")
    return content


def _apply(live: dict[str, Allocation], content: dict[str, Any], number: int) -> None:
    try:
        for row in content.get("put", ()):
            allocation = _allocation(row)
            live[allocation.allocation_id] = allocation
        for allocation_id in content.get("drop", ()):
            live.pop(allocation_id, None)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"line {number}: {type(error).__name__}: {error}") from None


def _version_1(raw: bytes) -> tuple[Allocation, ...]:
    try:
        data = msgspec.json.decode(raw)
        if data["version"] != 1:
            raise ValueError(f"version {data['version']!r}, not 1")
        live = {each.allocation_id: each for each in map(_allocation, data["allocations"])}
        return tuple(live.values())
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def _row(allocation: Allocation) -> dict[str, Any]:
    row = {name: getattr(allocation, name) for name in _FIELDS}
    row["family"] = allocation.family.name
    if allocation.override is not None:
        row["override"] = OverrideForm.of(allocation.override)
    return row


def _allocation(row: dict[str, Any]) -> Allocation:
    known = {name: row[name] for name in _FIELDS if name in row}
    override = known.pop("override", None)
    allocation = _allocation_of({**known, "family": Family[row["family"]].value})
    if override is None:
        return allocation
    return replace(allocation, override=_override_of(override).override())
