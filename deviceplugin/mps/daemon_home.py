"""Where the pipe and the logs of a GPU's MPS daemon are: below the run directory, or elsewhere.

``<run-dir>/mps/<GPU-UUID>`` is a directory, or with ``mpsRoot`` a link to ``<mpsRoot>/<GPU-UUID>``.
All that anybody is told is the path below the run directory: the daemon, whose sockets may have no
more than 107 bytes of path, and containers, whose answers the kubelet keeps for ever. So another
root asks for no other answer. Containers have the pipe directory itself mounted, so it is moved
only while nobody has a slice of the GPU, or where it is gone: then no path leads to what they have.

A pod that does not mount the node's directory would make one of its own, which no container finds,
so the root is held against what the node's first process sees.

Where the run directory is a mount, the pipe directory gets a file system of its own (`pipe_mount`).
Made by the thread of the GPU's worker alone; no container can write above ``pipe``.
"""

import contextlib
import os
import shutil
from pathlib import Path

from deviceplugin.cdi.trees import NodeRoot, node_root
from deviceplugin.store.mps_paths import pipe_directory
from libvgpu.errors import MpsError

from . import pipe_mount

_MODE = 0o755  # clients of any user come in through a bind mount
_OWN_MODE = 0o700  # and nobody else, as below the run directory


class DaemonHome:
    """The home of one GPU's daemon.

    Attributes:
        pipe: its pipe directory.
        log: the directory of its logs.
    """

    def __init__(
        self, run_dir: Path, uuid: str, root: str = "", node: NodeRoot | None = None
    ) -> None:
        """Makes nothing.

        Args:
            root: absolute, where it is to be; empty for the run directory.
            node: the node's root; None: where that is known to be.
        """
        self._node, self._run_dir = node, run_dir
        self.pipe = pipe_directory(run_dir, uuid)
        self._path = self.pipe.parent
        self.log = self._path / "log"
        self._target = str(Path(root) / uuid) if root else ""

    def is_elsewhere(self) -> bool:
        """Returns whether it is, and not where it is to be."""
        return os.path.lexists(self._path) and self.leads_to() != self._target

    def leads_to(self) -> str:
        """Returns where the files are, if not below the run directory; else empty."""
        try:
            return os.readlink(self._path)
        except OSError:
            return ""

    def make(self, may_move: bool) -> None:
        """Makes the directories.

        Args:
            may_move: nobody has the one that is there mounted.

        Raises:
            MpsError: the node has another directory under the root's name.
            OSError: they cannot be made, or what is there cannot be removed.
        """
        is_there = os.path.lexists(self._path)
        is_to_move = self.is_elsewhere() and (may_move or self._is_gone())
        target = self.leads_to() if is_there and not is_to_move else self._target
        if target:  # first, so that nothing is removed for a root that cannot be
            self._make_target(target)
        if is_to_move:
            self._remove()
        if target and not os.path.lexists(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.symlink_to(target)
        is_nobodys = may_move or not self.pipe.exists()
        for directory in (self.pipe, self.log):
            directory.mkdir(parents=True, exist_ok=True)
        if is_nobodys and not os.listdir(self.pipe):  # else somebody's daemon may be there
            pipe_mount.mount(self.pipe, self._run_dir)
        for directory in (self.pipe, self.log):
            directory.chmod(_MODE)

    def leave(self) -> None:
        """Unmounts the pipe directory, which nobody has: an earlier version's runner could neither
        move nor remove one that is mounted."""
        with contextlib.suppress(OSError):
            pipe_mount.unmount(self.pipe)

    def _make_target(self, target: str) -> None:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        self._check_is_nodes(os.path.dirname(target))
        with contextlib.suppress(FileExistsError):
            os.mkdir(target)
        os.chmod(target, _OWN_MODE)

    def _check_is_nodes(self, root: str) -> None:
        node = self._node or node_root("", os.environ)
        try:
            is_same = os.path.samefile(root, node.tree.at(root))
        except FileNotFoundError:
            is_same = False
        if not is_same:
            raise MpsError(
                f"the MPS root {root} is not the node's {root}, so containers would not find the "
                "daemon there; mount it into this pod at that path (dirs.mpsRoot of the chart)"
            )

    def _is_gone(self) -> bool:
        """Returns whether a link leads to what is not there."""
        return bool(self.leads_to()) and not self._path.exists()

    def _remove(self) -> None:
        pipe_mount.unmount(self.pipe)
        target = self.leads_to()
        if not target:
            shutil.rmtree(self._path)
            return
        self._path.unlink()
        with contextlib.suppress(OSError):  # another root's, which may not even be mounted now
            shutil.rmtree(target)
