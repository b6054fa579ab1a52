"""A file system in memory: what a layer of the image is made of. Plain data, no I/O.

Paths have no leading slash and are those of a merged /usr: what a package has in ``bin`` or ``lib``
is in ``usr/bin`` and ``usr/lib``. Everything is root's, and a file is either readable for everyone
or executable for everyone; so set-user-id bits of packages are dropped.
"""

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field

from libvgpu.errors import VgpuError

MERGED = ("bin", "sbin", "lib", "lib64")


@dataclass(frozen=True)
class File:
    """A regular file."""

    content: bytes
    is_executable: bool = False


@dataclass(frozen=True)
class Link:
    """A symbolic link."""

    target: str


@dataclass(frozen=True)
class Directory:
    """A directory that is there even if nothing is in it, or whose mode is an unusual one."""

    mode: int = 0o755


Entry = File | Link | Directory


def merged(path: str) -> str:
    """Returns a path without leading slash or dot, as it is where /usr is merged."""
    path = posixpath.normpath("/" + path).lstrip("/")
    return f"usr/{path}" if path.partition("/")[0] in MERGED else path


@dataclass
class Tree:
    """Entries by path."""

    entries: dict[str, Entry] = field(default_factory=dict)

    def add(self, path: str, entry: Entry) -> None:
        """Adds an entry.

        Raises:
            VgpuError: another one is there already.
        """
        path = merged(path)
        there = self.entries.setdefault(path, entry)
        if there != entry:
            raise VgpuError(f"two packages have a file {path!r}, and not the same one")

    def update(self, other: "Tree") -> None:
        """Adds all entries of another tree.

        Raises:
            VgpuError: see `add`.
        """
        for path, entry in other.entries.items():
            self.add(path, entry)

    def files(self) -> Iterator[tuple[str, File]]:
        """Yields every regular file."""
        for path, entry in self.entries.items():
            if isinstance(entry, File):
                yield path, entry

    def complete(self) -> Iterator[tuple[str, Entry]]:
        """Yields all entries and the directories above them, sorted by path, outer ones first."""
        above = {parent for path in self.entries for parent in _parents(path)}
        all_of = {path: Directory() for path in above} | self.entries
        yield from sorted(all_of.items())

    def resolve(self, path: str) -> str:
        """Returns where a path leads, following links of files; itself where nothing is."""
        path = merged(path)
        for _ in range(40):
            entry = self.entries.get(path)
            if not isinstance(entry, Link):
                return path
            path = merged(posixpath.join("/", posixpath.dirname(path), entry.target))
        raise VgpuError(f"the link {path!r} leads to itself")

    @property
    def size_bytes(self) -> int:
        """What all files have in them."""
        return sum(len(file.content) for _, file in self.files())


def _parents(path: str) -> Iterator[str]:
    while path := posixpath.dirname(path):
        yield path
