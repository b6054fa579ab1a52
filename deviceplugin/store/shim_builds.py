"""The builds of libvgpu.so in the state directory, each under its build id.

A container names the build that it was admitted with for as long as it lives, restarts included. So
a running process never sees a file replaced, an upgrade adds a build, and one that nobody names any
more goes at the next start of the agent.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Set
from contextlib import suppress
from pathlib import Path

from libvgpu import artifacts
from libvgpu.errors import RegionBusyError, RegionError, naming
from libvgpu.region_files import open_shared

from .held_files import HeldFiles

CONTAINER_DIRECTORY = "/run/vgpu"
_FILES = ("libvgpu.so", "ld.so.preload")
_BUILD_ID = re.compile(r"[0-9a-f]{8,128}")


def container_shim_path(build: str) -> str:
    """Returns where a build of the shim is in a container."""
    return f"{CONTAINER_DIRECTORY}/lib/{build}/libvgpu.so"


class ShimBuilds:
    """Those below one state directory.

    Attributes:
        shim: the present build's file.
        present: its build id.
    """

    def __init__(self, state_dir: Path, held: HeldFiles) -> None:
        self._root, self._held = state_dir / "lib", held
        self.shim = artifacts.shim_path()
        self.present = artifacts.build_id(self.shim)

    def directory(self, build: str) -> Path:
        """Returns where the files of a build are."""
        return self._root / build

    def is_whole(self, build: str) -> bool:
        """Tells whether the files of a build are there."""
        library = self.directory(build)
        return all((library / name).is_file() for name in _FILES)

    def install(self) -> None:
        """Puts the present build under its id, and holds the files of all builds.

        Raises:
            OSError: it cannot be written.
        """
        library = self.directory(self.present)
        # Reached by every user of a container, through bind mounts of the files themselves.
        library.mkdir(mode=0o755, parents=True, exist_ok=True)
        with naming(self.shim):
            content = self.shim.read_bytes()
        _place(library / "libvgpu.so", content, 0o755)
        text = container_shim_path(self.present) + "\n"
        _place(library / "ld.so.preload", text.encode(), 0o644)
        self.hold()

    def hold(self) -> None:
        """Holds the files of all builds; one that a container has a lease on, as soon as it can."""
        self._held.hold(list(self._root.glob("*/*")))

    def remove_others(self, named: Set[str]) -> list[str]:
        """Removes every build but the present one and those that are named; returns them."""
        gone = []
        for library in sorted(self._root.iterdir()):
            build = library.name
            if build == self.present or build in named or not _BUILD_ID.fullmatch(build):
                continue
            shutil.rmtree(library, ignore_errors=True)
            gone.append(build)
        return gone


def _place(path: Path, content: bytes, mode: int) -> None:
    """Makes a file what it must be.

    One that a container has a lease on is replaced, since who starts now is not to wait for that
    container. It keeps another name, by which it is held for containers that run.
    """
    try:
        with open(open_shared(path, os.O_RDONLY), "rb") as file:
            if file.read() == content:
                return
    except RegionBusyError:
        with suppress(FileExistsError):
            os.link(path, f"{path}.{path.stat().st_ino}")
    except (RegionError, OSError):
        pass
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with naming(path), os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        os.replace(temporary, path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
