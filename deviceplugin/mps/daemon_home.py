"""Where the pipe and the logs of a GPU's MPS daemon are: below the run directory, or elsewhere.

``<run-dir>/mps/<GPU-UUID>`` is a directory, or with ``mpsRoot`` a link to ``<mpsRoot>/<GPU-UUID>``.
All that anybody is told is the path below the run directory: the daemon, whose sockets may have no
more than 107 bytes of path, and containers, whose answers the kubelet keeps for ever. So another
root asks for no other answer. Containers have the pipe directory itself mounted, so it is moved
only while nobody has a slice of the GPU.

Used by the thread of the GPU's worker alone; no container can write above ``pipe``.
"""

import contextlib
import os
import shutil
from pathlib import Path

from deviceplugin.store.slice_files import pipe_directory
from libvgpu.errors import MpsError

_MODE = 0o755  # clients of any user come in through a bind mount


class DaemonHome:
    """The home of one GPU's daemon.

    Attributes:
        pipe: its pipe directory.
        log: the directory of its logs.
    """

    def __init__(self, run_dir: Path, uuid: str, root: str = "") -> None:
        """Makes nothing.

        Args:
            root: absolute, where it is to be; empty for the run directory.
        """
        self.pipe = pipe_directory(run_dir, uuid)
        self._path = self.pipe.parent
        self.log = self._path / "log"
        self._target = str(Path(root) / uuid) if root else ""

    def is_elsewhere(self) -> bool:
        """Returns whether it is, and not where it is to be."""
        return os.path.lexists(self._path) and self._found() != self._target

    def make(self, may_move: bool) -> None:
        """Makes the directories.

        Args:
            may_move: nobody has the one that is there mounted.

        Raises:
            OSError: they cannot be made, or what is there cannot be removed.
        """
        if may_move and self.is_elsewhere():
            self._remove()
        if self._target and not os.path.lexists(self._path):
            os.makedirs(self._target, _MODE, exist_ok=True)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.symlink_to(self._target)
        elif (target := self._found()) and not os.path.isdir(target):
            os.makedirs(target, _MODE)  # the link outlived what it leads to
        for directory in (self.pipe, self.log):
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod(_MODE)

    def _found(self) -> str:
        """Returns where the link leads; empty where there is none."""
        try:
            return os.readlink(self._path)
        except OSError:
            return ""

    def _remove(self) -> None:
        target = self._found()
        if not target:
            shutil.rmtree(self._path)
            return
        self._path.unlink()
        with contextlib.suppress(OSError):  # another root's, which may not even be mounted now
            shutil.rmtree(target)


def check_root(root: str) -> None:
    """Holds a root against what it may be.

    Raises:
        MpsError: it is no absolute path without dots.
    """
    path = Path(root)
    if root and (not path.is_absolute() or ".." in path.parts or len(path.parts) < 2):
        raise MpsError(f"the MPS root is {root!r}; allowed is an absolute path, not /, without ..")
