"""Installs wheels into a tree, as pip would for the image's Python, and reads what they are."""

import io
import posixpath
from collections.abc import Iterable
from email.message import Message
from email.parser import BytesParser
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from installer import install
from installer.destinations import WheelDestination
from installer.records import RecordEntry
from installer.scripts import Script
from installer.sources import WheelFile
from installer.utils import Scheme, construct_record_file

from .tree import File, Tree

if TYPE_CHECKING:
    from installer.scripts import ScriptSection

PYTHON: Final = "/usr/bin/python3.11"
SITE: Final = "usr/local/lib/python3.11/dist-packages"
_SCHEMES: Final[dict[str, str]] = {
    "purelib": SITE,
    "platlib": SITE,
    "scripts": "usr/local/bin",
    "data": "usr/local",
    "headers": "usr/local/include",
}


class _TreeDestination(WheelDestination):
    """Puts the files of one wheel into a tree."""

    def __init__(self, tree: Tree, leave_out: Iterable[str]) -> None:
        self._tree, self._leave_out = tree, tuple(leave_out)

    def write_script(
        self, name: str, module: str, attr: str, section: "ScriptSection"
    ) -> RecordEntry:
        name, content = Script(name, module, attr, section).generate(PYTHON, "posix")
        self._add("scripts", name, content, True)
        return RecordEntry(name, None, len(content))

    def write_file(
        self, scheme: Scheme, path: object, stream: BinaryIO, is_executable: bool
    ) -> RecordEntry:
        content = stream.read()
        if scheme == "scripts" and content.startswith(b"#!python"):
            content = f"#!{PYTHON}".encode() + content.removeprefix(b"#!python")
        self._add(scheme, str(path), content, is_executable or scheme == "scripts")
        return RecordEntry(str(path), None, len(content))

    def finalize_installation(
        self,
        scheme: Scheme,
        record_file_path: str,
        records: Iterable[tuple[Scheme, RecordEntry]],
    ) -> None:
        prefixes = {
            other: None
            if directory == SITE
            else posixpath.relpath("/" + directory, "/" + SITE) + "/"
            for other, directory in _SCHEMES.items()
        }
        there = (each for each in records if self._is_wanted(each[0], each[1].path))
        ordered = sorted(there, key=lambda each: (each[0], each[1].path))
        with construct_record_file(ordered, prefixes.get) as stream:
            self._add(scheme, record_file_path, stream.read(), False)

    def _add(self, scheme: str, path: str, content: bytes, is_executable: bool) -> None:
        if self._is_wanted(scheme, path):
            where = posixpath.join(_SCHEMES[scheme], path)
            self._tree.add(where, File(content, is_executable))

    def _is_wanted(self, scheme: str, path: str) -> bool:
        where = posixpath.join(_SCHEMES[scheme], path)
        return not any(fnmatchcase(where, each) for each in self._leave_out)


def install_wheel(tree: Tree, wheel: Path, leave_out: Iterable[str]) -> None:
    """Adds a wheel's files to a tree, without byte code.

    Args:
        leave_out: patterns of paths that are not added.

    Raises:
        VgpuError: another wheel has one of its files already.
    """
    with WheelFile.open(wheel) as source:
        destination = _TreeDestination(tree, leave_out)
        install(source, destination, {"INSTALLER": b"vgpu\n"})


def metadata_of(wheel: Path) -> Message:
    """Returns a wheel's METADATA: name, version, licence."""
    with WheelFile.open(wheel) as source:
        text = source.read_dist_info("METADATA")
    return BytesParser().parse(io.BytesIO(text.encode()))
