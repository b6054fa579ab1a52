"""Every generated file is what its source makes, and a file that is not is named."""

import re

import pytest

from support import ROOT
from support.generated import GENERATED, Generated

#: The manifests' program is built by Go: tests/e2e/test_install.py compares them.
HERE = [each for each in GENERATED if each.folder != "deploy/manifests"]


@pytest.mark.parametrize("files", HERE, ids=lambda each: each.name)
def test_the_files_are_what_their_source_makes(files: Generated) -> None:
    assert files.shipped()
    assert files.stale() == []


def test_a_file_that_is_changed_gone_or_no_longer_made_is_named() -> None:
    (files,) = [each for each in GENERATED if each.folder == "docs/man"]
    made = files.made()
    first, last = sorted(made)

    class Edited(Generated):
        def shipped(self) -> dict[str, bytes]:
            return {first: made[first] + b"edited", "no-verb.1": b""}

    edited = Edited(files.folder, files.patterns, files.source, files.write)

    assert [line.partition(" ")[0] for line in edited.stale()] == [
        f"docs/man/{name}" for name in (first, "no-verb.1", last)
    ]


def test_every_file_that_says_so_is_in_the_list() -> None:
    """As generators do, at the beginning."""
    listed = {ROOT / each.folder / name for each in GENERATED for name in each.shipped()}
    folders = ("libvgpu", "deviceplugin", "vgpuctl", "deploy", "docs", "benchmarks")
    says_so = re.compile(rb"(?i)do not edit|^.{0,5}generated (by|from)")

    found = {
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and says_so.search(path.read_bytes()[:300])
    }

    assert found
    assert found - listed == set()
