"""What the agent keeps on disk, damaged: it is read, the same again, or put aside with a reason."""

import contextlib
import json
import zlib
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import msgspec
from msgspec import inspect

from deviceplugin.model.agent_config import ConfigText
from deviceplugin.model.allocations import Allocation
from deviceplugin.pages.events import KeptEvent
from deviceplugin.store import event_file, journal, kept_config, learnt_sizes_file
from deviceplugin.store.checkpoint import NAME, Checkpoint
from fuzz.shapes import Shapes, words_of
from libvgpu.errors import VgpuError

_ALLOCATION = inspect.type_info(Allocation)
_WORDS = [*dict.fromkeys(words_of(_ALLOCATION)), "VGPU", "MPS", "STRICT", "product", "driver",
          "under_mps", "sizes", "named", "gpus", "form", "text", "name", "place"]  # fmt: skip
_FOLDER = Path(mkdtemp(prefix="vgpu-fuzz-"))


def one(data: bytes) -> None:
    """Reads one of the files."""
    shapes = Shapes(data)
    how = shapes.byte()
    (_checkpoint, _kept_config, _sizes, _events)[how & 3](shapes, how >> 2)


def _checkpoint(shapes: Shapes, how: int) -> None:
    raw = shapes.rest() if how & 1 else b"".join(_lines(shapes, how))
    path = _FOLDER / NAME
    path.write_bytes(raw)
    kept = Checkpoint(_FOLDER)
    loaded = kept.load()
    kept.close()
    if not loaded.trusted:
        assert loaded.problem
        return
    assert journal.replay(path.read_bytes()).allocations == loaded.allocations


def _lines(shapes: Shapes, how: int) -> list[bytes]:
    rows: list[Any] = []
    while shapes and len(rows) < 8:
        rows.append(shapes.like(_ALLOCATION, _WORDS))
        if isinstance(rows[-1], dict) and shapes.byte() < 240:
            rows[-1]["family"] = shapes.pick(("VGPU", "MPS"))
    if how & 2:
        return [json.dumps({"version": 1, "allocations": rows}).encode()]
    contents: list[Any] = [{"version": 2, "snapshot": shapes.byte() % 3}]
    contents += [{"put": [row], "drop": [shapes.text(_WORDS)][how & 1 :]} for row in rows]
    if how & 4:
        contents[-1] = shapes.json(_WORDS)
    bodies = [json.dumps(each).encode() for each in contents]
    lines = [b"%08x %s\n" % (zlib.crc32(body), body) for body in bodies]
    return [*lines[:-1], lines[-1][: -shapes.byte() % 16 or None]] if how & 8 else lines


def _kept_config(shapes: Shapes, how: int) -> None:
    values: dict[str, Any] = {
        key: shapes.text(_WORDS) for key in ("place", "text", "name", "chosen_by")
    }
    content = {"form": shapes.json(_WORDS) if how & 2 else kept_config.FORM, **values}
    digest = kept_config._hash(kept_config._values(ConfigText(**values)))
    content["sha256"] = digest if how & 4 else ""
    content["indexes"] = {
        "named": shapes.json(_WORDS),
        "gpus": [[shapes.pick((0, 1, "1", None, float("inf"))), "GPU-1", "T4"], shapes.json(_WORDS)]
        if how & 8
        else [[1, "GPU-1", "T4"]],
    }
    raw = shapes.rest() if how & 1 else json.dumps(content).encode()
    (_FOLDER / kept_config.FILE).write_bytes(raw)
    with contextlib.suppress(VgpuError):
        kept_config.KeptConfig(_FOLDER).load()


def _sizes(shapes: Shapes, how: int) -> None:
    row = {"product": "T4", "driver": "570", "under_mps": 1, "sizes": {"c": shapes.json(_WORDS)}}
    rows = shapes.json(_WORDS) if how & 2 else [row, {**row, "sizes": {"": [1, shapes.number()]}}]
    raw = shapes.rest() if how & 1 else json.dumps(rows).encode()
    (_FOLDER / learnt_sizes_file.FILE).write_bytes(raw)
    learnt_sizes_file.KeptSizes(_FOLDER)


def _events(shapes: Shapes, how: int) -> None:
    kind = inspect.type_info(KeptEvent)
    lines = [json.dumps(shapes.like(kind, _WORDS)).encode() for _ in range(how % 4)]
    (_FOLDER / event_file.FILE).write_bytes(b"\n".join([*lines, shapes.rest()]))
    assert isinstance(msgspec.json.decode(event_file.events_page(_FOLDER)), list)
