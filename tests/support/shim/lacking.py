"""Slices whose programs find other libraries than the machine's: older ones, or foreign ones."""

import os
from dataclasses import dataclass
from pathlib import Path

from support.shim.slices import Slice
from support.sim.driver import library_of


@dataclass
class SliceWithLibraries(Slice):
    """A slice whose programs look for libraries in ``libraries`` first."""

    libraries: Path = Path()

    def environment(self, *, shim: bool = True) -> dict[str, str]:
        environment = super().environment(shim=shim)
        path = f"{self.libraries}{os.pathsep}{environment['LD_LIBRARY_PATH']}"
        return environment | {"LD_LIBRARY_PATH": path}


def with_libraries(part: Slice, directory: Path) -> SliceWithLibraries:
    """Returns the same slice, its programs finding the libraries of ``directory`` first."""
    return SliceWithLibraries(part.machine, part.directory, part.processes, libraries=directory)


def without_symbols(part: Slice, directory: Path, library: str, *symbols: str) -> Slice:
    """Returns the same slice with a copy of a library, in ``directory``, that lacks ``symbols``.

    Their names are changed in the copy: nothing finds them any more, and all else stays.
    """
    image = library_of(part.machine, library).read_bytes()
    for symbol in symbols:
        name = b"\0" + symbol.encode() + b"\0"
        assert name in image, symbol
        image = image.replace(name, name[:-2] + b"~\0")
    directory.mkdir()
    (directory / library).write_bytes(image)
    return with_libraries(part, directory)
