"""Where the node's own files are: its root as this process sees it, and its processes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deviceplugin.cdi.trees import NodeRoot, node_root

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Host:
    """The node as it is seen.

    Attributes:
        root: its file system.
        proc: its ``/proc``.
    """

    root: NodeRoot
    proc: Path = _PROC

    @classmethod
    def of(cls, given: str, environ: Mapping[str, str]) -> "Host":
        """Returns where it is.

        Args:
            given: where the node's root is mounted; empty: where that is known to be.
            environ: of this process, which tells whether it runs in a pod.
        """
        named = Path(given) / "proc"
        # A mounted root mostly has an empty one: processes are those of this process's own.
        is_filled = bool(given) and (named / "1").is_dir()
        return cls(node_root(given, environ), named if is_filled else _PROC)

    def text(self, path: str) -> str:
        """Returns a file of the node, empty where it cannot be read."""
        return self.root.tree.text(path) or ""
