"""Directory trees of the node as a process in a container of its own sees them.

The node's root may lie elsewhere for the agent (``/proc/1/root``), and so may the root of a driver
that is itself installed in a container (``/run/nvidia/driver``). Absolute links in such a tree mean
paths of the tree, which the kernel would look up below the agent's own root, so links are followed
here. Reads only; keeps nothing.
"""

import os
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

_INIT_ROOT = "/proc/1/root"
_MOST_LINKS = 40  # as the kernel allows in one lookup


@dataclass(frozen=True, slots=True)
class Tree:
    """One tree.

    Attributes:
        seen: where this process finds its root.
        host: where its root is on the node.
    """

    seen: str = "/"
    host: str = "/"

    def real(self, path: str) -> str:
        """Returns a path of the tree with all links followed, as far as it exists."""
        waiting, found, links = deque(path.split("/")), list[str](), 0
        while waiting:
            part = waiting.popleft()
            if part in ("", "."):
                continue
            if part == "..":
                del found[-1:]
                continue
            try:
                target = os.readlink(_below(self.seen, "/".join([*found, part])))
            except OSError:
                found.append(part)
                continue
            links += 1
            if links > _MOST_LINKS:
                return "/" + "/".join([*found, part, *waiting])
            if target.startswith("/"):
                found = []
            waiting.extendleft(reversed(target.split("/")))
        return "/" + "/".join(found)

    def at(self, path: str) -> str:
        """Returns where this process opens a path of the tree, links followed."""
        return _below(self.seen, self.real(path))

    def on_host(self, path: str) -> str:
        """Returns what a path of the tree is called on the node."""
        return _below(self.host, path)

    def below(self, path: str) -> "Tree":
        """Returns the tree whose root is a directory of this one."""
        return Tree(self.at(path), self.on_host(path)) if path.strip("/") else self

    def exists(self, path: str) -> bool:
        """Returns whether there is something at a path of the tree."""
        return os.path.lexists(self.at(path))

    def names(self, path: str) -> list[str]:
        """Returns what lies in a directory of the tree, in order; nothing where it is not there."""
        try:
            return sorted(os.listdir(self.at(path)))
        except OSError:
            return []

    def text(self, path: str) -> str | None:
        """Returns a text file of the tree, None where it cannot be read."""
        try:
            with open(self.at(path), encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return None


@dataclass(frozen=True, slots=True)
class NodeRoot:
    """The node's own root.

    Attributes:
        is_seen: it can be looked at; else the tree is that of the agent's own container.
    """

    tree: Tree = Tree()
    is_seen: bool = True


def node_root(given: str, environ: Mapping[str, str], init_root: str = _INIT_ROOT) -> NodeRoot:
    """Returns the node's root.

    Args:
        given: where an admin says that it is; empty: that of the node's first process, which a
            privileged agent with the node's pids sees, or the agent's own outside of a pod.
        environ: the agent's environment, which tells whether it runs in a pod.
    """
    if given:
        return NodeRoot(Tree(given.rstrip("/") or "/"))
    try:
        os.listdir(init_root)
        is_ours = os.path.samefile(init_root, "/")
    except OSError:
        is_ours = True
    if not is_ours:
        return NodeRoot(Tree(init_root))
    return NodeRoot(is_seen="KUBERNETES_SERVICE_HOST" not in environ)


def _below(root: str, path: str) -> str:
    return f"{root.rstrip('/')}/{path.lstrip('/')}"
