"""Corpora: small inputs by which targets begin, packed into one file each in ``tests/fuzz/corpus``.

What a run finds further lies unpacked in ``build/fuzz/corpus``. `keep` takes of it the fewest
inputs that reach all that any of them reaches.
"""

import hashlib
import lzma
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from support import ROOT

PACKED = ROOT / "tests/fuzz/corpus"
BUILT = ROOT / "build/fuzz"
_MEMORY = "/dev/shm"
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]


def read(name: str) -> list[bytes]:
    """Returns the committed inputs of a target."""
    try:
        raw = lzma.decompress((PACKED / f"{name}.xz").read_bytes())
    except FileNotFoundError:
        return []
    found = []
    while raw:
        length = int.from_bytes(raw[:4], "little")
        found.append(raw[4 : 4 + length])
        raw = raw[4 + length :]
    return found


def write(name: str, inputs: list[bytes]) -> None:
    """Commits inputs in place of those before."""
    raw = b"".join(len(each).to_bytes(4, "little") + each for each in sorted(inputs))
    PACKED.mkdir(exist_ok=True)
    packed = lzma.compress(raw, check=lzma.CHECK_CRC32, filters=_FILTERS)
    (PACKED / f"{name}.xz").write_bytes(packed)


def folder(name: str, above: Path = BUILT / "corpus") -> Path:
    """Returns the folder in which a run of a target begins, with the committed inputs in it."""
    place = above / name
    place.mkdir(parents=True, exist_ok=True)
    for each in read(name):
        path = place / hashlib.sha1(each, usedforsecurity=False).hexdigest()
        if not path.exists():
            path.write_bytes(each)
    return place


@contextmanager
def room() -> Iterator[Mapping[str, str]]:
    """Gives the environment of a target, with a folder for its files that is removed then."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if os.path.isdir(_MEMORY) else None) as folder:
        options = {"TMPDIR": folder, "ASAN_OPTIONS": "allocator_may_return_null=1"}
        options["PYTHONHASHSEED"] = "0"
        yield {**os.environ, **options}
