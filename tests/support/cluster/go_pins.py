"""Which versions Go programs of tests are made of.

A go.mod here requires releases of other projects, and its go.sum has their hashes. All that a
release is made of its own go.mod and go.sum say, so that is written down there alone. Of several
releases in one go.mod the newer version counts, as Go has it.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from support.cluster import go_modules

_REQUIRED = re.compile(r"^(?:\t|require )(\S+) (v\S+)(?: // indirect)?$", re.M)
_RELEASES = re.compile(r"^(?:\t|require )(\S+) v\S+$", re.M)
# Kubernetes has its libraries in its tree, from where no other module can take them. They are also
# published, with the numbers of the release and a 0 for its major. Our go.sum has their hashes.
_IN_ITS_TREE = re.compile(r"^\t(\S+) => \./staging/", re.M)
_NUMBERED_BY_IT = "v0.0.0"


def write(folder: Path, release: str, target: Path) -> Path:
    """Writes a go.mod and its go.sum that have every module, and returns the former.

    Args:
        folder: with the go.mod and go.sum that name releases.
        release: the only one that counts; empty: all do.
        target: an existing directory.

    Raises:
        NotHere: a release cannot be had on this machine, now.
        AssertionError: one has another content than go.sum says, or go.sum lacks it.
    """
    own = (folder / "go.mod").read_text()
    required, moved = dict[str, str](), list[str]()
    sums = [(folder / "go.sum").read_text()]
    if not release:
        required |= dict(_REQUIRED.findall(own))
    for each in [release] if release else _RELEASES.findall(own):
        there = go_modules.folder_of(folder, each)
        required[each] = go_modules.version_of(folder, each)
        libraries = "v0." + required[each].partition(".")[2]
        text = (there / "go.mod").read_text()
        for name, version in _REQUIRED.findall(text):
            newer = libraries if version == _NUMBERED_BY_IT else version
            required[name] = max(newer, required.get(name, newer), key=_age)
        moved += [f"{name} => {name} {libraries}" for name in _IN_ITS_TREE.findall(text)]
        sums.append((there / "go.sum").read_text())
    head = own.partition("\nrequire")[0]
    rows = (f"{name} {version}" for name, version in sorted(required.items()))
    pins = target / "go.mod"
    pins.write_text(f"{head}\n{_block('require', rows)}{_block('replace', moved)}")
    pins.with_suffix(".sum").write_text("".join(sums))
    return pins


def _block(word: str, rows: Iterable[str]) -> str:
    return "\n".join([f"{word} (", *(f"\t{row}" for row in rows), ")\n"])


def _age(version: str) -> tuple[list[int], bool, str]:
    """Returns what orders versions as Go does: one before a release is older than the release."""
    numbers, _, before = version.removeprefix("v").partition("-")
    return [int(part) for part in numbers.partition("+")[0].split(".")], not before, before
