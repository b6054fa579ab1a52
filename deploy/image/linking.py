"""Checks that every program and library of the image finds the libraries that it is linked to."""

import io
import posixpath
from collections.abc import Iterator

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.segments import InterpSegment

from libvgpu.errors import VgpuError

from .tree import File, Tree


def check_libraries(tree: Tree, machine: str) -> int:
    """Looks for the loader and for each needed library of each file; returns how many files.

    Args:
        machine: as Linux names the architecture.

    Raises:
        VgpuError: one would not be found, or a file is for another architecture.
    """
    usual = (f"usr/lib/{machine}-linux-gnu", "usr/lib", "usr/lib64")
    checked = 0
    for path, file in tree.files():
        if not file.content.startswith(b"\x7fELF"):
            continue
        checked += 1
        elf = ELFFile(io.BytesIO(file.content))
        if elf.get_machine_arch() != _NAMES[machine]:
            raise VgpuError(f"/{path} is for {elf.get_machine_arch()}, in an image for {machine}")
        for name in _needed(elf):
            places = [*_own_places(elf, path), *usual]
            if name.startswith("/"):
                places, name = ["/"], name.lstrip("/")
            if not any(_is_file(tree, posixpath.join(place, name)) for place in places):
                raise VgpuError(
                    f"/{path} needs {name}, which nothing in the image has: add its package to "
                    "deploy/image/contents.yaml"
                )
    return checked


_NAMES = {"x86_64": "x64", "aarch64": "AArch64"}


def _is_file(tree: Tree, path: str) -> bool:
    return isinstance(tree.entries.get(tree.resolve(path)), File)


def _needed(elf: ELFFile) -> Iterator[str]:
    """Yields the loader of a program, and what a file is linked to."""
    for segment in elf.iter_segments():
        if isinstance(segment, InterpSegment):
            yield segment.get_interp_name()
    yield from _tags(elf, "DT_NEEDED", "needed")


def _own_places(elf: ELFFile, path: str) -> Iterator[str]:
    """Yields the directories that a file itself names."""
    for named in (*_tags(elf, "DT_RPATH", "rpath"), *_tags(elf, "DT_RUNPATH", "runpath")):
        for each in named.split(":"):
            yield each.replace("$ORIGIN", posixpath.dirname("/" + path))


def _tags(elf: ELFFile, name: str, attribute: str) -> Iterator[str]:
    for section in elf.iter_sections():
        if isinstance(section, DynamicSection):
            yield from (getattr(tag, attribute) for tag in section.iter_tags(name))
